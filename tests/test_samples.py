"""The made-up files that pages are tried with: the same for everybody, and as described."""

import math

import pytest

import noisewise
from noisewise.cli import main
from noisewise.data.samples import sample_ratings, sample_readings, write_samples


def test_the_files_are_the_same_every_time(tmp_path):
    first, second = (write_samples(tmp_path) and [p.read_bytes() for p in tmp_path.iterdir()]
                     for _ in range(2))  # fmt: skip
    assert first == second


def test_the_command_writes_what_the_readers_read(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "new" / "sample"
    monkeypatch.setattr("sys.argv", ["noisewise", "data", "sample", "--to", str(folder)])
    with pytest.raises(SystemExit) as done:
        main()
    assert not done.value.code
    assert capsys.readouterr().out.split() == [
        str(folder / f"{name}.csv") for name in ("ratings", "today", "films", "people", "readings")
    ]
    ratings = noisewise.read(folder / "ratings.csv", time="timestamp")
    assert ratings.shape == (78, 32)
    films = noisewise.read_features(folder / "films.csv", "item")
    assert "Dune" in films["item"]


def test_new_people_and_films_come_today_and_are_known_by_their_features():
    tables = sample_ratings()
    assert "Dune" not in tables["ratings"]["item"]
    assert "Dune" in tables["today"]["item"]
    assert {*tables["today"]["item"]} <= {*tables["films"]["item"]}
    assert {*tables["today"]["user"]} <= {*tables["people"]["user"]}
    assert {*tables["ratings"]["rating"]} == {1, 2, 3, 4, 5}


def test_readings_have_an_outage_a_spike_and_single_holes():
    table = sample_readings()
    missing = {name: [k for k, x in enumerate(column) if math.isnan(x)]
               for name, column in table.items() if name != "time"}  # fmt: skip
    assert set(range(168, 216)) <= set(missing["attic"])
    assert all(len(holes) > 5 for holes in missing.values())
    assert max(x for x in table["office"] if not math.isnan(x)) == table["office"][280] > 40
