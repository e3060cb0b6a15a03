"""``python -m noisewise`` is the command line, where ``noisewise`` is not on the path."""

from noisewise.cli import main

if __name__ == "__main__":
    main()
