"""Files of results: whole after every split, taken up where they stopped, refused if foreign."""

import json

import pytest

from noisewise.errors import DataError
from noisewise.evaluation.records import Record, read_results

ABOUT = {"model": "ou", "data": {"observations": 9}}


def result(share, *seeds, model="ou"):
    return {
        "model": model,
        "settings": {},
        "protocol": {"kind": "cells", "share": share},
        "data": {"observations": 9},
        "splits": [{"seed": seed, "mse": 0.5} for seed in seeds],
    }


def test_one_result_is_written_as_it_is_and_several_as_a_list(tmp_path):
    path = tmp_path / "ou.json"
    record = Record(ABOUT, path)
    record.keep(result(0.1, 0))
    assert json.loads(path.read_text()) == result(0.1, 0)
    record.keep(result(0.2, 0))
    assert json.loads(path.read_text()) == [result(0.1, 0), result(0.2, 0)]


def test_a_result_takes_the_place_of_the_one_under_its_protocol(tmp_path):
    record = Record(ABOUT, tmp_path / "ou.json")
    for one in (result(0.1, 0), result(0.2, 0), result(0.1, 0, 1)):
        record.keep(one)
    again = Record(ABOUT, tmp_path / "ou.json")
    assert again.results == [result(0.1, 0, 1), result(0.2, 0)]
    assert again.under(result(0.1)["protocol"]) == result(0.1, 0, 1)
    assert again.under(result(0.3)["protocol"]) is None


def test_the_choice_of_a_model_is_read_back_and_must_be_a_name(tmp_path):
    path = tmp_path / "auto.json"
    chosen = result(0.1, 0)
    chosen["splits"][0]["choice"] = "ou"
    Record(ABOUT, path).keep(chosen)
    assert Record(ABOUT, path).results == [chosen]
    chosen["splits"][0]["choice"] = 3
    path.write_text(json.dumps(chosen))
    with pytest.raises(DataError, match="must each have a seed"):
        read_results(path)


def test_without_a_file_results_stay_in_memory():
    record = Record(ABOUT)
    record.keep(result(0.1, 0))
    assert record.content == result(0.1, 0)


def test_a_file_of_another_model_is_left_alone(tmp_path):
    path = tmp_path / "ptf.json"
    path.write_text(json.dumps(result(0.1, 0, model="ptf")))
    with pytest.raises(DataError, match="another model, ptf and not ou: write to another file"):
        Record(ABOUT, path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "must hold results as JSON"),
        (b"\xff\xfe", "must hold results as JSON"),
        (b"[1]", "something other than results"),
        (b'{"model": "ou"}', "something other than results"),
        (json.dumps(result(0.1) | {"splits": [{"mse": 1}]}).encode(), "must each have a seed"),
        (json.dumps(result(0.1) | {"splits": 3}).encode(), "must each have a seed"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, content, message):
    path = tmp_path / "strange.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_results(path)
