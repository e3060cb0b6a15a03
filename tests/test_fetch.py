"""Fetching public datasets, from a server on this machine: nothing here leaves it."""

import gzip
import hashlib
import importlib
import io
import json
import re
import sys
import zipfile
from dataclasses import replace

import pytest

from noisewise import registry
from noisewise.cli import main
from noisewise.data import fetch
from noisewise.data.files import read
from noisewise.errors import DataError, MissingExtraError, SettingError

pytest.importorskip("pooch")

RATINGS = [(1, 122, "5", 838985046), (1, 185, "4.5", 838983525), (2, 122, "0.5", 868245777)]
CELLS = [(1, 122), (1, 185), (2, 122)]
LAYOUTS = {
    "u.data": ("\t", ""),
    "ratings.dat": ("::", ""),
    "ratings.csv": (",", "userId,movieId,rating,timestamp\n"),
}
MOVIELENS = [name for name in fetch.sources() if name.startswith("ml-")]
# Datasets as packages may add them: without checksums, with a file for every site, and by hand.
PAGE = {"what": "Made up", "licence": "Free", "terms": "https://example.org/terms"}
MADE_UP = {
    "meter": PAGE | {
        "read": "meter",
        "files": [
            {"url": "https://example.org/data.gz", "megabytes": 1, "to": "meter/data.txt.gz"},
            {"url": "https://example.org/places.txt", "megabytes": 1, "to": "meter/places.txt"},
        ],
    },
    "city": PAGE | {
        "read": "city",
        "sites": ["A1", "B2", "C3"],
        "files": [
            {"url": f"https://example.org/site?at={{site}}&half={k}", "megabytes": 1,
             "to": f"city/{{site}}-{k}.csv"}
            for k in (1, 2)
        ],
    },
    "prize": PAGE | {"read": "prize", "files": [], "by_hand": "Kaggle has a copy. Unpack it"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    known = registry.sources() | MADE_UP
    monkeypatch.setattr(registry, "sources", lambda: known)


def archive(files):
    """Return a zip archive."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    return stream.getvalue()


def release(name):
    """Return a MovieLens archive in the layout of a release."""
    member = fetch.find(name).files[0].unpack
    folder, file = member.split("/")
    delimiter, head = LAYOUTS[file]
    rows = [row if file != "u.data" else (*row[:2], row[2][0], row[3]) for row in RATINGS]
    text = head + "".join(delimiter.join(map(str, row)) + "\n" for row in rows)
    return archive({f"{folder}/README": "cite us", f"{folder}/movies.dat": "x", member: text})


def yes(kind, sentence):
    return True


@pytest.mark.parametrize("name", MOVIELENS)
def test_every_release_of_movielens_is_fetched_checked_and_read(local, tmp_path, name):
    source = local(name, release(name))
    found = fetch.fetch(source, tmp_path / "data", agree=yes)
    (path,) = found
    assert found[path] == hashlib.sha256(path.read_bytes()).hexdigest()
    seen = read(tmp_path / "data" / source.read, time="timestamp")
    assert seen.decode() == CELLS
    assert seen.values.tolist() == ([5.0, 4.0, 0.0] if name == "ml-100k" else [5.0, 4.5, 0.5])
    assert seen.time.tolist() == [row[3] for row in RATINGS]
    assert (path.parent / "README").read_text() == "cite us"
    assert not (path.parent / "movies.dat").exists()


def test_what_is_there_is_not_downloaded_again_and_may_be_put_there_by_hand(
    local, server, tmp_path
):
    source = local("ml-1m", release("ml-1m"))
    (tmp_path / "ml-1m.zip").write_bytes(release("ml-1m"))
    for _ in range(2):
        fetch.fetch(source, tmp_path, agree=yes)
    assert server[1] == []
    (tmp_path / "ml-1m.zip").write_bytes(b"cut off")
    fetch.fetch(source, tmp_path, agree=yes)
    assert server[1] == ["/0/ml-1m.zip"]
    assert len(read(tmp_path / "ml-1m")) == 3


def test_files_are_put_where_their_dataset_says(local, tmp_path):
    source = local("meter", gzip.compress(b"19.9\n"), b"1 21.5 23\n")
    found = fetch.fetch(source, tmp_path, agree=yes)
    folder = tmp_path / source.read
    assert [*found] == [folder / "data.txt.gz", folder / "places.txt"]
    assert gzip.decompress((folder / "data.txt.gz").read_bytes()) == b"19.9\n"
    assert (folder / "places.txt").read_bytes() == b"1 21.5 23\n"


def test_every_site_has_its_files(local, server, tmp_path):
    source = local("city", b"first", b"second").at(["MY1"])
    fetch.fetch(source, tmp_path, agree=yes)
    names = {path.name: path.read_bytes() for path in (tmp_path / source.read).iterdir()}
    assert names == {"MY1-1.csv": b"first", "MY1-2.csv": b"second"}
    assert [path.partition("?")[2] for path in server[1]] == ["at=MY1&half=1", "at=MY1&half=2"]
    assert len(fetch.find("city").downloads()) == 2 * 3


def test_nothing_is_asked_of_a_server_before_the_licence_is_agreed_to(local, server, tmp_path):
    source = local("ml-1m", release("ml-1m"))
    asked = []

    def no(kind, sentence):
        asked.append((kind, sentence))
        return False

    with pytest.raises(DataError, match="licence was not agreed to"):
        fetch.fetch(source, tmp_path, agree=no)
    ((kind, sentence),) = asked
    assert kind == "licence"
    assert source.licence in sentence
    assert source.terms in sentence
    assert server[1] == []


def test_a_dataset_without_checksums_has_to_be_agreed_to_twice(local, server, tmp_path):
    source = local("meter", b"", b"")
    asked = []

    def half(kind, sentence):
        asked.append((kind, sentence))
        return kind == "licence"

    with pytest.raises(DataError, match="cannot be checked"):
        fetch.fetch(source, tmp_path, agree=half)
    assert [kind for kind, _ in asked] == ["licence", "unchecked"]
    assert "No checksum is published for 2 of 2 files" in asked[1][1]
    assert server[1] == []


def test_a_file_with_another_checksum_is_thrown_away(local, tmp_path):
    source = local("ml-1m", release("ml-1m"), checked=False)
    with pytest.raises(
        DataError, match=r"checksum is not the published one, so it was thrown away"
    ):
        fetch.fetch(source, tmp_path, agree=yes)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_an_archive_without_the_ratings_is_refused(local, tmp_path):
    source = local("ml-1m", archive({"README": "nothing else"}))
    with pytest.raises(DataError, match=r"does not hold ml-1m/ratings\.dat"):
        fetch.fetch(source, tmp_path, agree=yes)
    source = local("ml-1m", b"no archive at all")
    with pytest.raises(DataError, match=r"does not hold ml-1m/ratings\.dat.*Remove it"):
        fetch.fetch(source, tmp_path, agree=yes)


def test_an_archive_cannot_write_elsewhere(local, tmp_path):
    member = fetch.find("ml-1m").files[0].unpack
    packed = archive({member: "1::2::3::978300760\n", "../../../README": "outside"})
    fetch.fetch(local("ml-1m", packed), tmp_path / "a" / "b" / "c", agree=yes)
    assert (tmp_path / "a" / "b" / "c" / "ml-1m" / "README").read_text() == "outside"
    assert not (tmp_path / "README").exists()


@pytest.mark.parametrize("fault", ["not there", "no server"])
def test_a_failure_says_what_to_download_by_hand_and_where_to_put_it(
    local, server, tmp_path, fault
):
    source = local("ml-1m", release("ml-1m"))
    if fault == "not there":
        server[0].clear()
    else:  # port 9 answers nobody
        source = replace(
            source, files=(replace(source.files[0], url="http://127.0.0.1:9/ml-1m.zip"),)
        )
    with pytest.raises(DataError) as caught:
        fetch.fetch(source, tmp_path, agree=yes)
    sentence = str(caught.value)
    assert source.files[0].url in sentence
    assert f"so that there is {tmp_path / 'ml-1m/ratings.dat'}" in sentence
    assert f"put it at {tmp_path / 'ml-1m.zip'} and fetch again" in sentence


def test_what_is_not_to_be_had_says_where_it_is(tmp_path):
    with pytest.raises(DataError, match=r"prize cannot be fetched\. .*Unpack it into"):
        fetch.fetch(fetch.find("prize"), tmp_path, agree=yes)


def test_an_unknown_dataset_and_a_wrong_site_are_errors():
    with pytest.raises(SettingError, match=r"must be one of ml-100k, .*; got 'ml-2m'"):
        fetch.find("ml-2m")
    with pytest.raises(SettingError, match="ml-1m is not divided into sites"):
        fetch.find("ml-1m").at(["MY1"])
    with pytest.raises(SettingError, match=r"letters and digits; got '\.\./x'"):
        fetch.find("city").at(["../x"])


def test_every_source_has_terms_and_honest_checksums():
    for source in fetch.sources().values():
        assert source.terms.startswith("https://")
        assert source.files or source.by_hand
        for file in source.files:
            assert file.url.startswith("https://")
            assert file.md5 is None or re.fullmatch("[0-9a-f]{32}", file.md5)
        assert source.is_checked == source.name.startswith("ml-")


def test_without_pooch_it_says_what_to_install(tmp_path, monkeypatch):
    real = importlib.__import__

    def without_pooch(name, *args, **kwargs):
        if name == "pooch":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr("builtins.__import__", without_pooch)
    with pytest.raises(MissingExtraError, match=r"noisewise\[data\]"):
        fetch.fetch(fetch.find("ml-1m"), tmp_path, agree=yes)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Call the command line in a folder of its own; its status, and what it said."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["noisewise", "data", *words])
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code or 0
        said = capsys.readouterr()
        return status, said.out + said.err

    return call


@pytest.fixture
def typed(monkeypatch):
    """Type answers at a terminal."""

    def answer(*answers):
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        left = list(answers)
        monkeypatch.setattr("builtins.input", lambda _: left.pop(0))

    return answer


def test_the_list_has_every_dataset(run):
    status, said = run("list")
    assert status == 0
    for source in fetch.sources().values():
        assert re.search(rf"^ *{source.name} .*{re.escape(source.what)}$", said, re.MULTILINE)
    assert run("list", "--json", "list.json")[0] == 0
    with open("list.json") as file:
        assert {one["name"] for one in json.load(file)} == set(fetch.sources())


def test_the_command_asks_and_then_fetches(run, local, server, monkeypatch, typed):
    source = local("ml-1m", release("ml-1m"))
    monkeypatch.setattr(fetch, "find", lambda name: source)
    typed("no")
    status, said = run("fetch", "ml-1m")
    assert status == 2
    assert "GroupLens allows research use" in said
    assert server[1] == []
    typed("yes")
    status, said = run("fetch", "ml-1m", "--to", "here")
    assert status == 0
    assert "Give noisewise here/ml-1m." in said
    assert len(read("here/ml-1m")) == 3


def test_without_a_terminal_flags_have_to_agree(run, local, monkeypatch):
    bodies = b"19.9\n", b"1 21.5 23\n"
    source = local("meter", *bodies)
    monkeypatch.setattr(fetch, "find", lambda name: source)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    status, said = run("fetch", "meter")
    assert status == 2
    assert "pass --accept-licence" in said
    status, said = run("fetch", "meter", "--accept-licence")
    assert status == 2
    assert "No checksum is published" in said
    assert "pass --accept-unchecked" in said
    status, said = run("fetch", "meter", "--accept-licence", "--accept-unchecked")
    assert status == 0
    assert hashlib.sha256(bodies[0]).hexdigest() in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ml-2m"], "A dataset must be one of"),
        (["prize"], "Kaggle has a copy"),
        (["ml-1m", "--site", "MY1"], "not divided into sites"),
    ],
)
def test_an_error_of_the_command_is_one_sentence(run, words, sentence):
    status, said = run("fetch", *words)
    assert status == 2
    assert sentence in said
    assert "Traceback" not in said


@pytest.mark.parametrize("command", ["list", "fetch"])
def test_commands_have_help_with_an_example(run, command):
    assert f"Example: noisewise data {command}" in run(command, "--help")[1]
