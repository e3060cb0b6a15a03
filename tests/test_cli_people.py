"""The command line in the hands of people: found out early, in its own words, safe to look at."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import typer
from test_cli import QUICK, run

from noisewise import DeviationFactorizer, errors
from noisewise.cli import app, main
from noisewise.cli.options import aligned, check_file, grouped, in_options, parsed
from noisewise.errors import DataError
from noisewise.models import bayesian, load

NASTY = "\x1b]0;evil\x07\u202egpj"
SHOWN = r"\x1b]0;evil\x07\u202egpj"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ratings, one user of whom has a name that a terminal would obey; and a model of them."""
    folder = tmp_path_factory.mktemp("people")
    rng = np.random.default_rng(0)
    users = [NASTY, *(f"u{k}" for k in range(19))]
    with (folder / "ratings.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "item", "rating"])
        for cell in rng.permutation(20 * 12)[:180]:
            writer.writerow([users[cell // 12], f"i{cell % 12}", rng.integers(1, 6)])
    assert run("fit", folder / "ratings.csv", "--out", folder / "model.nw", *QUICK) == 0
    return folder


@pytest.fixture
def no_work(monkeypatch):
    """Let every training fail the test."""

    def refused(*_, **__):
        pytest.fail("There was work before the check.")

    monkeypatch.setattr(DeviationFactorizer, "fit", refused)
    monkeypatch.setattr(bayesian.BayesianFactorizer, "fit", refused)


PLACES = {
    "fit --out": ["fit", "{ratings}", "--out", "{gone}/a.nw"],
    "fit --json": ["fit", "{ratings}", "--out", "a.nw", "--json", "{gone}/a.json"],
    "fit --checkpoint": ["fit", "{ratings}", "--out", "a.nw", "--checkpoint", "{gone}/a"],
    "predict --out": ["predict", "{model}", "{ratings}", "--out", "{gone}/a.csv"],
    "recommend --json": ["recommend", "{model}", "u1", "--json", "{gone}/a.json"],
    "noise --plot": ["noise", "{model}", "--plot", "{gone}/a.png"],
    "noise --save": ["noise", "{ratings}", "--save", "{gone}/a.nw"],
    "impute --out": ["impute", "{ratings}", "--out", "{gone}/a.csv"],
    "impute --page": ["impute", "{ratings}", "--out", "a.csv", "--page", "{gone}/a.html"],
    "evaluate --json": ["evaluate", "{ratings}", "--json", "{gone}/a.json"],
    "compare --json": ["compare", "{ratings}", "{ratings}", "--json", "{gone}/a.json"],
    "tune --out": ["tune", "{ratings}", "--model", "dmf", "--out", "{gone}/a.json"],
    "report --out": ["report", "{ratings}", "--out", "{gone}/a.html"],
    "data list --json": ["data", "list", "--json", "{gone}/a.json"],
}


@pytest.mark.parametrize("words", PLACES.values(), ids=PLACES.keys())
def test_a_folder_that_is_not_there_is_found_before_the_work(folder, capsys, no_work, words):
    places = {
        "ratings": folder / "ratings.csv", "model": folder / "model.nw", "gone": folder / "gone",
    }  # fmt: skip
    assert run(*(word.format(**places) for word in words)) == 2
    shown = capsys.readouterr().err
    assert f"cannot be written: there is no folder {folder / 'gone'}." in shown
    assert not (folder / "gone").exists()


def test_every_option_that_names_a_file_to_write_is_checked():
    """What the help calls a file or page to write has the check; input files have none."""
    checked = set()
    for name, command in typer.main.get_command(app).commands.items():
        for option in command.params:
            if option.name in ("out", "json", "report", "page", "plot", "save", "checkpoint"):
                if "--" not in "".join(option.opts):
                    continue
                assert option.callback is not None, f"{name} {option.opts}"
                checked.add((name, option.opts[0]))
    assert len(checked) > 15


def test_a_folder_or_a_file_in_the_way_is_found_before_the_work(folder, capsys, no_work):
    ratings = folder / "ratings.csv"
    assert run("fit", ratings, "--out", folder) == 2
    assert "it is a folder; give the name of a file" in capsys.readouterr().err
    assert run("fit", ratings, "--out", ratings / "a.nw") == 2
    assert "cannot be written: Not a directory" in capsys.readouterr().err
    assert run("demo", "--out", ratings) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_a_folder_that_one_may_not_write_to_is_found_before_the_work(folder, monkeypatch, no_work):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(DataError, match=r"a.nw cannot be written: Permission denied\."):
        check_file(folder / "a.nw")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert run("demo", "--out", folder / "demo") == 2
    check_file(Path("-"))


def test_a_save_that_fails_names_the_file_that_was_asked_for(folder):
    for parent in ("gone", "ratings.csv"):
        path = folder / parent / "model.nw"
        with pytest.raises(OSError, match=r"o such file|ot a directory") as caught:
            load(folder / "model.nw").save(path)
        assert caught.value.filename == str(path)


def test_tables_are_written_as_their_names_say(folder, capsys):
    pyarrow = pytest.importorskip("pyarrow.parquet")
    contents = {}
    for ending in ("csv", "csv.gz", "tsv", "tsv.gz", "parquet", "CSV"):
        out = folder / f"predicted.{ending}"
        assert run("predict", folder / "model.nw", folder / "ratings.csv", "--out", out) == 0
        contents[ending] = out.read_bytes()
    text = contents["csv"].decode()
    assert contents["CSV"] == contents["csv"]
    assert gzip.decompress(contents["csv.gz"]) == contents["csv"]
    assert gzip.decompress(contents["tsv.gz"]) == contents["tsv"]
    rows = list(csv.reader(io.StringIO(text)))
    assert rows == list(csv.reader(io.StringIO(contents["tsv"].decode()), delimiter="\t"))
    table = pyarrow.read_table(folder / "predicted.parquet")
    assert table.column_names == rows[0]
    assert [list(map(str, row.values())) for row in table.to_pylist()] == rows[1:]
    assert NASTY in text  # files keep every letter
    assert NASTY in table["user"].to_pylist()


@pytest.mark.filterwarnings("ignore:.*unknown")
def test_ids_of_several_types_are_text_in_parquet(folder, tmp_path):
    pyarrow = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "numbers.csv").write_text(
        "user,item,rating\n" + "".join(f"{k % 8},{k // 8},{k % 3}\n" for k in range(64))
    )
    model = tmp_path / "model.nw"
    assert run("fit", tmp_path / "numbers.csv", "--out", model, *QUICK) == 0
    (tmp_path / "cells.csv").write_text("user,item\n1,2\nnobody,3\n")
    out = tmp_path / "out.parquet"
    assert run("predict", model, tmp_path / "cells.csv", "--out", out) == 0
    assert pyarrow.read_table(out)["user"].to_pylist() == ["1", "nobody"]


@pytest.mark.parametrize("name", ["a.xlsx", "a", "a.gz", "parquet"])
def test_a_table_with_another_ending_is_refused_in_a_sentence(folder, capsys, name):
    words = ["predict", folder / "model.nw", folder / "ratings.csv", "--out", folder / name]
    assert run(*words) == 2
    assert "ends in .csv, .csv.gz, .tsv, .tsv.gz, .parquet" in capsys.readouterr().err
    assert not (folder / name).exists()


def test_parquet_without_pyarrow_names_the_extra(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    words = ["predict", folder / "model.nw", folder / "ratings.csv", "--out", folder / "b.parquet"]
    assert run(*words) == 2
    assert "pip install 'noisewise[parquet]'" in capsys.readouterr().err


@pytest.mark.parametrize("none", ["None", "none", "null"])
def test_none_true_and_false_are_settings_in_any_spelling(folder, none):
    out = folder / "none.nw"
    words = ["--set", f"patience={none}", "--set", "refit=False", "--set", "value_range=(1, 5)"]
    assert run("fit", folder / "ratings.csv", "--out", out, *QUICK, *words) == 0
    model = load(out)
    assert model.patience is None
    assert model.refit is False
    assert model.value_range == (1, 5)


def test_evaluate_takes_models_that_hold_nothing_out(folder, capsys):
    words = ["--model", "dmf", "--set", "patience=None", "--set", "epochs=2", "--splits", 1]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "These intervals are not calibrated")
        assert run("evaluate", folder / "ratings.csv", *words, "--json", folder / "plain.json") == 0
    result = json.loads((folder / "plain.json").read_text())
    assert result["splits"][0]["epochs"] == 2
    assert result["splits"][0]["constant_std"] > 0


def test_what_tune_prints_is_what_set_takes(folder, capsys, tmp_path):
    words = ["--trials", 1, "--set", "patience=None", "--set", "value_range=[1, 5]"]
    words += ["--set", "epochs=2", "--set", "rank=2"]
    assert run("tune", folder / "ratings.csv", "--model", "dmf", *words) == 0
    shown = capsys.readouterr().out
    assert "--set patience=null" in shown
    assert "--set 'value_range=[1, 5]'" in shown or "--set value_range='[1, 5]'" in shown
    assert parsed(["patience=null", "value_range=[1, 5]"]) == {
        "patience": None, "value_range": (1, 5),
    }  # fmt: skip


CHOICES = {
    "duplicates": ["fit", "{ratings}", "--out", "a.nw", "--duplicates", "first"],
    "model": ["fit", "{ratings}", "--out", "a.nw", "--model", "first"],
    "format": ["fit", "{ratings}", "--out", "a.nw", "--format", "first"],
    "protocol": ["evaluate", "{ratings}", "--protocol", "first"],
    "dataset": ["evaluate", "{ratings}", "--dataset", "first"],
    "method": ["impute", "{ratings}", "--out", "a.csv", "--method", "first"],
    "method of tune": ["tune", "{ratings}", "--model", "dmf", "--method", "first"],
    "model of tune": ["tune", "{ratings}", "--model", "dmf", "--model", "first"],
    "metric": ["tune", "{ratings}", "--model", "dmf", "--metric", "first"],
    "validation": ["tune", "{ratings}", "--model", "dmf", "--validation", "first"],
}


@pytest.mark.parametrize(("name", "words"), CHOICES.items(), ids=CHOICES.keys())
def test_a_word_that_is_no_choice_is_refused_with_the_choices(folder, capsys, no_work, name, words):
    assert run(*(word.format(ratings=folder / "ratings.csv") for word in words)) == 2
    shown = capsys.readouterr().err
    option = name.split()[0]
    assert f"--{option} must be one of " in shown
    assert "got 'first'" in shown


def test_errors_speak_of_options(folder, capsys):
    def told(text, *words, name="odd.csv"):
        (folder / name).write_text(text)
        assert run("fit", folder / name, "--out", folder / "odd.nw", *words, *QUICK) == 2
        shown = capsys.readouterr().err
        assert "=" not in shown
        return shown

    doubt = told("a,user,item,rating,b\n1,2,3,4,5\n2,3,4,5,1\n")
    assert "--id and --value, such as --id user --id item --value rating." in doubt
    assert "--id 0 --id 1 --value 2." in told("1,2,3,4,5\n2,3,4,5,6\n")
    twice = told("user,item,rating\n1,2,3\n1,2,4\n2,2,1\n")
    assert "--duplicates last or --duplicates mean" in twice
    assert "--format, one of csv, tsv" in told("user,item,rating\n1,2,3\n", name="odd.ratings")


def test_columns_may_be_named_by_position_and_the_format_by_an_option(folder, capsys):
    rows = "\n".join(f"{k},{k % 5},{k // 5},{k % 3},7" for k in range(25))
    (folder / "bare").write_text(rows)
    words = ["--id", 1, "--id", 2, "--value", 3, "--format", "csv"]
    assert run("fit", folder / "bare", "--out", folder / "bare.nw", *words, *QUICK) == 0
    assert "25 of 5 column 1 x 5 column 2" in capsys.readouterr().out


SENTENCES = {
    "name time with time=.": "name time with --time.",
    "location=, sensor= and value= too": "--location, --sensor and --value too",
    "fit with keep_seen=True, or pass exclude_seen=False.": (
        "fit with --set keep_seen=true, or pass --seen."
    ),
    "got rank=3 and 'time' is a word": "got rank=3 and 'time' is a word",
    'value="a b", or drop': "--value 'a b', or drop",
    "got 'x'. Name the mode that is time with time=.": (
        "got 'x'. Give the column of times as the last --id."
    ),
    "get another one, or pass exact=False to take it as it is.": "get another one.",
    "locations are: pass coordinates={id: (x, y)}, or": "locations are: give data that say so, or",
}


@pytest.mark.parametrize(("said", "meant"), SENTENCES.items())
def test_parameters_become_options(said, meant):
    assert in_options(said) == meant


def test_warnings_are_sentences(folder, capsys):
    words = ["--set", "patience=None"]
    out = folder / "plain.nw"
    assert run("fit", folder / "ratings.csv", "--out", out, *QUICK, *words) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run("predict", out, folder / "ratings.csv", "--out", folder / "plain.csv") == 0
    shown = capsys.readouterr().err
    assert "noisewise: These intervals are not calibrated" in shown
    assert "fit with --set patience=3" in shown
    assert "UserWarning" not in shown
    assert ".py" not in shown


def test_a_terminal_is_not_told_what_it_would_obey(folder, capsys, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    model, data = folder / "model.nw", folder / "ratings.csv"
    for words in (
        ["recommend", model, NASTY],
        ["noise", model, "--fewest", 1],
        ["noise", model, "--data", data, "-n", 200],
        ["predict", model, data],
    ):
        screen = Terminal()
        monkeypatch.setattr(sys, "stdout", screen)
        assert run(*words) == 0
        assert SHOWN in screen.getvalue()
        assert screen.getvalue().replace("\n", "").isprintable()


def test_data_goes_into_a_pipe_as_it_is_and_a_list_of_people_does_not(folder, capsys):
    assert run("predict", folder / "model.nw", folder / "ratings.csv") == 0
    assert NASTY in capsys.readouterr().out
    assert run("recommend", folder / "model.nw", NASTY) == 0
    assert SHOWN in capsys.readouterr().out
    assert run("recommend", folder / "model.nw", NASTY, "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)[0]["id"] == NASTY


def test_an_id_cannot_add_a_line_to_a_table():
    assert aligned({"id": ["a\nb", "c"], "x\r": [1.0, 2.0]}).splitlines() == [
        "  id     x\\r", "a\\nb  1.0000", "   c  2.0000",
    ]  # fmt: skip


def test_errors_on_a_terminal_are_safe(folder, capsys):
    (folder / "nasty.csv").write_text(f"a{NASTY},user,item,rating,b\n1,2,3,4,5\n2,3,4,5,1\n")
    assert run("fit", folder / "nasty.csv", "--out", folder / "x.nw") == 2
    shown = capsys.readouterr().err
    assert SHOWN in shown
    assert shown.replace("\n", "").isprintable()
    assert run("fit", folder / f"{NASTY}.csv", "--out", folder / "x.nw") == 2
    assert SHOWN in capsys.readouterr().err


def test_it_runs_as_a_module():
    words = [sys.executable, "-m", "noisewise", "fit", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "Usage: noisewise fit" in done.stdout
    assert "Example" in done.stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [("noisewise rec", "recommend"), ("noisewise fit x --model b", "biased-mf")],
)
def test_a_shell_completes_commands_and_choices(line, expected, monkeypatch, capsys):
    monkeypatch.setenv("_NOISEWISE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    monkeypatch.setattr(sys, "argv", ["noisewise"])
    with pytest.raises(SystemExit):
        main()
    assert expected in capsys.readouterr().out.split()


def test_progress_is_asked_for_or_silenced_for_all_commands(folder, capsys):
    words = ["fit", folder / "ratings.csv", "--out", folder / "bars.nw", *QUICK]
    assert run("--progress", *words) == 0
    assert "%" in capsys.readouterr().err
    assert errors.show_progress is True
    assert run("--no-progress", *words) == 0
    assert capsys.readouterr().err == ""
    assert run(*words, "--set", "verbose=true") == 0
    assert "%" in capsys.readouterr().err
    assert errors.show_progress is None


@dataclass(frozen=True, kw_only=True)
class Greeting:
    """Options that belong together."""

    name: str = typer.Option(..., help="Whom to greet.")
    word: list[str] = typer.Option([], "--say", help="What to say.")
    loud: bool = False


def test_a_group_of_options_is_given_to_its_command_as_one_object():
    calls = []

    def greet(place: str, *, greeting: Greeting, times: int = 1) -> None:
        """Greet somebody."""
        calls.append((place, greeting, times))

    alone = typer.Typer()
    alone.command()(grouped(greet))
    words = ["hall", "--name", "ann", "--say", "hi", "--say", "ho", "--loud"]
    typer.main.get_command(alone)(words, standalone_mode=False)
    typer.main.get_command(alone)(["x", "--name", "bo"], standalone_mode=False)
    assert calls == [
        ("hall", Greeting(name="ann", word=["hi", "ho"], loud=True), 1),
        ("x", Greeting(name="bo", word=[]), 1),
    ]
    assert grouped(greet).__doc__ == "Greet somebody."


def test_a_file_that_is_read_is_never_written_over(folder, capsys):
    data, cells = folder / "kept.csv", folder / "cells.csv"
    data.write_text((folder / "ratings.csv").read_text())
    cells.write_text("user,item\n1,2\n")
    model, before = folder / "model.nw", (data.read_bytes(), cells.read_bytes())
    for words in (
        ["fit", data, "--out", data, *QUICK],
        ["fit", data, "--out", folder / "new.nw", "--json", data, *QUICK],
        ["update", model, data, "--out", data],
        ["predict", model, cells, "--out", cells],
    ):
        assert run(*words) == 2
        assert "is kept as it is: write to another file" in capsys.readouterr().err
    assert (data.read_bytes(), cells.read_bytes()) == before


def test_the_mode_of_lists_is_a_name_or_a_number(folder, capsys):
    shown = []
    for mode in ("item", "1"):
        assert run("recommend", folder / "model.nw", "i3", "--mode", mode, "-n", 3) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert run("recommend", folder / "model.nw", "i3", "--mode", "2") == 2
    assert "mode must be one of ['user', 'item']" in capsys.readouterr().err


def test_cells_in_an_empty_file_are_not_looked_for(folder, capsys):
    (folder / "nothing.csv").touch()
    assert run("predict", folder / "model.nw", folder / "nothing.csv") == 2
    assert "The file is empty" in capsys.readouterr().err
