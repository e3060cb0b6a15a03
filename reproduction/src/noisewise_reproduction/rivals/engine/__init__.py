"""What rivals learn with: plain arrays in, plain arrays out."""
