"""Readings of sensors in the formats their owners publish, broken lines and all."""

import gzip

import numpy as np
import pytest
from noisewise_reproduction.datasets import intel, laqn
from test_cli import run
from test_fetch import yes

from noisewise.data import Observations, fetch
from noisewise.data.files import read
from noisewise.data.panel import named_panel, read_panel
from noisewise.errors import DataError, NoisewiseError
from noisewise.noise import noise_model, noisy_places, noisy_series

LAB = """\
2004-03-31 03:38:15.757551 2 1 122.153 -3.91901 11.04 2.03397
2004-02-28 00:59:16.02785 3 1 19.9884 37.0933 45.08 2.69964
2004-02-28 01:03:16.33393 11 1 19.3024 38.4629  2.68742
2004-02-28 01:03:17.33393 11 1 99.0 99.0 99.0 99.0
2004-02-28 01:06:16.013453 17 2 19.1652 38.8039 45.08 2.68742
2004-02-28 01:06:46.778088 18 2 19.175 38.8379
2004-02-28 01:08:45.992524 22 2
2004-02-28 01:09:22.323858
2004-02-28 01:10:22.3 27 two 19.1 38.8 45.08 2.7
2004-02-28 01:11:22.3 29 65407 19.1 38.8 45.08 2.7
2004-02-28 01:12:22.3 31 55 19.1 38.8 45.08 2.7
2004-02-28 01:13:22.3 33 3 19.1 inf 45.08 2.7
2004-02-28 01:14:22.3\t35\t3 19.1 38.8  45.08 2.7
"""
HEADER = "Site,Species,ReadingDateTime,Value,Units,Provisional or Ratified\n"
ARRAYS = {
    "loc": np.array([0, 1, 0]),
    "sensor": np.array([0, 0, 0]),
    "time": np.array([0, 1, 2]),
    "value": np.array([1.0, 2.0, 3.0]),
    "mote_id": np.array([4, 9]),
    "sensor_name": np.array(["heat"]),
    "epoch0": np.array(7),
    "coords_xy_m": np.array([[0.0, 1.0], [2.0, 3.0]]),
}


def archive(folder, arrays):
    """Write an archive of readings."""
    np.savez(folder / "s.npz", **arrays)
    return folder / "s.npz"


@pytest.fixture
def lab(tmp_path):
    (tmp_path / "data.txt").write_text(LAB)
    (tmp_path / "mote_locs.txt").write_text("1 21.5 23\n2 24.5 20\n\n3 19.5 19\n")
    return tmp_path


@pytest.fixture
def london(tmp_path):
    (tmp_path / "MY1.csv").write_text(
        HEADER
        + "MY1,NO2,11/07/2002 00:00,96.1,ug m-3,R\n"
        + "MY1,NO2,12/07/2002 00:00,,ug m-3,R\n"
        + "MY1,NO2,13/07/2002 00:00,-3,ug m-3,P\n"
        + "MY1,CO,11/07/2002 00:00,1.4,mg m-3,R\n"
        + "MY1,CO,11/07/2002 00:00,9.9,mg m-3,R\n"
        + "MY1,CO,31/02/2002 00:00,1.4,mg m-3,R\n"
        + "MY1,CO,12/07/2002 00:00,high,mg m-3,R\n"
        + "MY1,CO,13/07/2002\n"
        + "MY1,CO,12/07/2002 00:30,1.0,mg m-3,R\n"
    )
    (tmp_path / "BX1.csv").write_text(HEADER + '"BX1","PM10",2002-07-13,20.5,"ug/m3",R\n\n')
    (tmp_path / "sites.csv").write_text(
        "@SiteCode,@SiteName,@Latitude,@Longitude\n"
        "MY1,Marylebone Road,51.52254,-0.15459\nBQ9,Slade Green,,\n"
    )
    return tmp_path


def test_readings_of_the_lab_are_found_among_broken_lines(lab):
    data = read_panel(lab)
    assert data.observations.names == ("location", "sensor", "time")
    rows = dict(zip(data.observations.decode(), data.observations.values.tolist(), strict=True))
    assert len(rows) == 5 * 4
    assert rows[1, "temperature", 3] == np.float32(19.9884)
    assert rows[1, "voltage", 11] == np.float32(2.68742)
    assert rows[1, "light", 11] == 99.0  # the first one of this epoch
    assert rows[3, "voltage", 35] == np.float32(2.7)
    assert data.report == {
        "lines": 13,
        "broken_lines": 5,
        "unknown_motes": 2,
        "missing_readings": 1,
        "repeated_readings": 3,
    }


def test_a_reading_that_is_missing_does_not_move_the_next_one(tmp_path):
    (tmp_path / "data.txt").write_text("2004-02-28 01:03:16.33393 11 1 19.3024 38.4629  2.68742\n")
    seen = read_panel(tmp_path).observations
    assert [cell[1] for cell in seen.decode()] == ["temperature", "humidity", "voltage"]
    assert seen.values[2] == np.float32(2.68742)


def test_motes_stand_where_mote_locs_puts_them(lab):
    assert read_panel(lab).coordinates == {1: (21.5, 23.0), 2: (24.5, 20.0), 3: (19.5, 19.0)}
    (lab / "mote_locs.txt").unlink()
    assert read_panel(lab).coordinates is None


def test_a_broken_line_of_mote_locs_is_an_error(lab):
    (lab / "mote_locs.txt").write_text("1 21.5 23\n2 24.5\n")
    with pytest.raises(DataError, match=r"mote_locs\.txt, line 2: expected moteid x y"):
        read_panel(lab)


def test_days_keep_to_a_part_of_the_file(lab):
    data = intel.read(lab, days=("2004-02-28", "2004-02-28"))
    assert 2 not in data.observations.ids[2].labels
    assert data.report["lines"] == 12


def test_elapsed_time_comes_from_epochs(lab):
    data = read_panel(lab)
    assert data.observations.ids[2].labels.tolist() == [2, 3, 11, 17, 35]
    assert data.elapsed().tolist() == [0.0, 30.0, 270.0, 450.0, 990.0]


def test_a_compressed_file_is_read_alike(lab):
    plain = read_panel(lab)
    (lab / "data.txt.gz").write_bytes(gzip.compress((lab / "data.txt").read_bytes()))
    (lab / "data.txt").unlink()
    assert read_panel(lab).observations.decode() == plain.observations.decode()


def test_readings_of_london_are_found_among_broken_lines(london):
    data = read_panel(london)
    rows = dict(zip(data.observations.decode(), data.observations.values.tolist(), strict=True))
    assert rows == {
        ("BX1", "PM10", 11881): 20.5,
        ("MY1", "NO2", 11879): np.float32(96.1),
        ("MY1", "NO2", 11881): -3.0,
        ("MY1", "CO", 11879): np.float32(1.4),
    }
    assert str(np.datetime64(11879, "D")) == "2002-07-11"
    assert data.seconds == 86_400
    assert data.report == {
        "lines": 10,
        "broken_lines": 4,
        "missing_readings": 1,
        "repeated_readings": 1,
    }


def test_sites_and_species_are_in_alphabetical_order(london):
    ids = read_panel(london).observations.ids
    assert ids[0].labels.tolist() == ["BX1", "MY1"]
    assert ids[1].labels.tolist() == ["CO", "NO2", "PM10"]


def test_sites_stand_where_the_list_of_sites_puts_them(london):
    places = read_panel(london).coordinates
    assert list(places) == ["MY1"]
    x, y = places["MY1"]
    assert (x, y) == pytest.approx((-1854, 1683), abs=2)
    (london / "sites.csv").unlink()
    assert read_panel(london).coordinates is None


def test_a_site_is_not_at_a_place_without_numbers(london):
    (london / "sites.csv").write_text("SiteCode,Latitude,Longitude\nMY1,north,0.1\n")
    with pytest.raises(DataError, match=r"sites\.csv: expected degrees for MY1; got 'north'"):
        read_panel(london)


def test_hours_are_counted_where_readings_are_hourly(tmp_path):
    rows = "MY1,NO2,11/07/2002 00:00,96,ug m-3,R\nMY1,NO2,11/07/2002 05:00,90,ug m-3,R\n"
    (tmp_path / "MY1.csv").write_text(HEADER + rows)
    data = read_panel(tmp_path)
    assert data.observations.ids[2].labels.tolist() == [11879 * 24, 11879 * 24 + 5]
    assert data.elapsed().tolist() == [0.0, 5 * 3600.0]


def test_the_way_to_settle_repeated_readings_can_be_chosen(london):
    at = ("MY1", "CO", 11879)
    for repeats, expected in [("first", 1.4), ("last", 9.9), ("mean", 5.65)]:
        seen = read_panel(london, repeats=repeats).observations
        assert seen.values[seen.decode().index(at)] == pytest.approx(expected)
    with pytest.raises(DataError, match="1 cell is given more than once"):
        read_panel(london, repeats="error")
    with pytest.raises(ValueError, match="got 'median'"):
        read_panel(london, repeats="median")


def test_the_general_reader_knows_files_and_folders_of_sensors(lab, london):
    (lab / "BX1.csv").unlink()
    (lab / "MY1.csv").unlink()
    assert read(lab, duplicates="last").shape == (3, 4, 5)
    assert read(lab / "data.txt", duplicates="mean").shape == (3, 4, 5)
    with pytest.raises(DataError, match="3 cells are given more than once"):
        read(lab)


def test_the_general_reader_knows_the_file_of_a_site(london):
    assert read(london, duplicates="last").shape == (2, 3, 2)
    assert read(london / "MY1.csv", duplicates="last").names == ("location", "sensor", "time")
    (london / "BX1.csv").write_text(HEADER + "BX1,NO,1,2,x,R\nBX1,CO,1,3,x,R\n")
    by_hand = read(london / "BX1.csv", ids=["Site", "Species"], value="Value")
    assert by_hand.names == ("Site", "Species")


def npz(path, **more):
    loc, time = np.divmod(np.arange(6), 3)
    np.savez(
        path,
        loc=loc.astype(np.uint8),
        time=time.astype(np.int16),
        sensor=np.zeros(6, np.uint8),
        value=np.arange(6.0),
        sensor_name=np.array(["NO2"]),
        **more,
    )
    return path


def test_an_archive_of_days_counts_them_from_1970(tmp_path):
    path = npz(
        tmp_path / "t.npz",
        site_code=np.array(["BX1", "BQ9"]),
        coords_latlon=np.array([[51.5074, -0.1278], [np.nan, np.nan]]),
        time_origin="2002-07-11 (days)",
    )
    data = read_panel(path)
    assert data.observations.ids[2].labels.tolist() == [11879, 11880, 11881]
    assert data.coordinates == {"BX1": (0.0, 0.0)}
    assert data.seconds == 86_400


def test_an_archive_of_the_lab_counts_epochs(tmp_path):
    path = npz(
        tmp_path / "t.npz",
        mote_id=np.array([4, 7]),
        coords_xy_m=np.array([[1.0, 2.0], [3.0, 4.5]]),
        epoch0=14284,
        time_origin="epoch 14284 = 2004-03-04 00:00",
    )
    data = read_panel(path)
    assert data.observations.ids[2].labels.tolist() == [14284, 14285, 14286]
    assert data.coordinates == {4: (1.0, 2.0), 7: (3.0, 4.5)}
    assert data.seconds == 30


def test_an_archive_must_say_how_long_a_step_is(tmp_path):
    with pytest.raises(DataError, match="needs an array time_origin such as"):
        read_panel(npz(tmp_path / "t.npz"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epoch0": np.array([1, 2])}, "epoch0 must be a single number"),
        ({"epoch0": np.array(1.5)}, "epoch0 must be a single number"),
        ({"epoch0": np.array(2**60)}, "more than 2\\*\\*53"),
        ({"time": np.array([0, 1, 2**63 - 1])}, "more than 2\\*\\*53"),
        ({"time": np.array([0.5, 1, 2])}, "'time' must hold integers"),
        ({"loc": np.array([0.0, 1.0, 0.0])}, "'loc' must hold integers"),
        ({"loc": np.array(["0", "1", "0"])}, "'loc' must hold integers"),
        ({"loc": np.array([0, 1, 2**64 - 1], np.uint64)}, "has position 18446744073709551615"),
        ({"value": np.array(["a", "b", "c"])}, "not a number"),
        ({"coords_xy_m": np.zeros((2, 3))}, "two numbers for each of 2 mote_id"),
        ({"coords_xy_m": np.array([["a", "b"], ["c", "d"]])}, "two numbers for each"),
        ({"mote_id": np.zeros((2, 2))}, "'mote_id' must have one dimension"),
    ],
)
def test_arrays_of_sensors_that_do_not_fit_are_a_sentence(tmp_path, change, message):
    path = archive(tmp_path, ARRAYS | change)
    with pytest.raises(DataError, match=message):
        read_panel(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time_origin": np.array("2024-99-99 (days)")}, "time_origin has no such day"),
        ({"time_origin": np.array(7)}, "time_origin must be a single text"),
        ({"time_origin": np.array("2024-01-01 (days)"), "coords_xy_m": None,
          "coords_latlon": np.array([[1e300, 2.0], [0.0, 0.0]])}, "a latitude and a longitude"),
    ],
)  # fmt: skip
def test_origins_and_places_of_sensors_are_checked(tmp_path, change, message):
    arrays = {k: v for k, v in (ARRAYS | change).items() if k != "epoch0" and v is not None}
    with pytest.raises(DataError, match=message):
        read_panel(archive(tmp_path, arrays))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.txt", "1 2 3\n", "expected an npz file .* or data.txt of the Intel lab"),
        ("t.csv", "a,b\n1,2\n", "expected an npz file .* or data.txt of the Intel lab"),
        ("data.txt", "2004-02-28 00:59:16.02785 3\n", r"data\.txt: Found no reading"),
        ("t.csv", HEADER + "MY1,NO2,11/07/2002 00:00,,x,R\n", "Found no reading"),
    ],
)
def test_a_file_without_readings_is_an_error(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_panel(tmp_path)


def test_readers_refuse_what_is_not_theirs(tmp_path):
    with pytest.raises(DataError, match=r"expected a data\.txt with lines like"):
        intel.read(tmp_path)
    with pytest.raises(DataError, match="expected CSV files that begin with 'Site,Species"):
        laqn.read(tmp_path)


def test_two_epochs_of_the_lab_make_a_bin(tmp_path):
    line = "2004-03-0{} 00:00:0{}.0 {} {} 20.{} 30.0 {} 2.7\n".format
    lines = [
        line(4, 0, 14283, 1, 0, "40.0"),  # before the first day
        line(4, 0, 14285, 1, 2, "42.0"),
        line(4, 1, 14284, 1, 1, ""),  # earlier, though further down; without light
        line(4, 2, 14286, 54, 3, "43.0"),
        line(8, 0, 28683, 2, 4, "44.0"),
        line(9, 0, 28684, 2, 5, "45.0"),  # after the last day
        line(4, 0, 14290, 5, 6, "46.0"),  # a mote that is silent in these days
    ]
    (tmp_path / "data.txt").write_text("".join(lines) + "2004-03-31 00:00:00 14284 1 9 9 9 9\n")
    data = named_panel("intel-2epoch", tmp_path, exact=False)
    seen = data.observations
    rows = dict(zip(seen.decode(), seen.values.tolist(), strict=True))
    assert seen.shape == (52, 4, 7200)
    assert data.seconds == 60
    assert len(rows) == 12
    assert rows[1, "temperature", 7142] == np.float32(20.1)
    assert rows[1, "light", 7142] == 42.0
    assert rows[54, "light", 7143] == 43.0
    assert rows[2, "light", 14341] == 44.0


def test_london_of_paper_size_has_all_days_and_species(london):
    data = named_panel("london-paper-size", london, exact=False)
    assert data.observations.shape == (15, 19, 7479)
    assert sorted(data.observations.decode()) == sorted(read_panel(london).observations.decode())
    assert data.coordinates.keys() == {"MY1"}
    cells = np.ravel_multi_index(data.observations.codes, data.observations.shape)
    assert np.all(np.diff(cells) > 0)


def test_a_name_stands_for_an_exact_number_of_cells(london):
    with pytest.raises(DataError, match=r"has 476,614 observed cells, but this copy gives 4;"):
        named_panel("london-paper-size", london)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("paris", "dataset must be one of london-paper-size, intel-2epoch; got 'paris'"),
        ("intel-2epoch", "expected epochs of the lab; got steps of 86400 s"),
    ],
)
def test_a_name_needs_its_own_data(london, name, message):
    with pytest.raises(NoisewiseError, match=message):
        named_panel(name, london)


def test_a_name_refuses_readings_of_other_days(tmp_path):
    rows = "MY1,NO2,11/07/1999 00:00,96,ug m-3,R\nMY1,NO2,12/07/1999 00:00,9,ug m-3,R\n"
    (tmp_path / "MY1.csv").write_text(HEADER + rows)
    with pytest.raises(DataError, match="none of its readings is of the locations and days"):
        named_panel("london-paper-size", tmp_path)


def test_london_of_paper_size_has_its_published_count(data_folder):
    data = named_panel("london-paper-size", data_folder / "london_laqn_daily.npz")
    assert (
        repr(data.observations) == "Observations(476,614 of 15 location x 19 sensor x 7,479 time)"
    )
    days = data.observations.ids[2].labels
    assert [str(np.datetime64(int(day), "D")) for day in days[[0, -1]]] == [
        "2002-07-11",
        "2022-12-31",
    ]
    assert len(data.coordinates) == 15


def test_two_epochs_of_the_lab_have_their_published_count(data_folder):
    data = named_panel("intel-2epoch", data_folder / "intel_lab_5days.npz")
    assert (
        repr(data.observations) == "Observations(1,236,999 of 52 location x 4 sensor x 7,200 time)"
    )
    assert len(data.coordinates) == 52
    assert data.elapsed()[-1] == 5 * 86_400 - 60


def test_the_lab_survives_the_way_through_data_txt(data_folder, tmp_path):
    archive = data_folder / "intel_lab_5days.npz"
    seen = read_panel(archive).observations
    few = seen.take((seen.codes[0] < 3) & (seen.codes[2] < 600))
    lines = {}
    for (mote, sensor, epoch), value in zip(few.decode(), few.values.tolist(), strict=True):
        lines.setdefault((mote, epoch), {})[sensor] = f"{value:.9g}"
    with (tmp_path / "data.txt").open("w") as file:
        for (mote, epoch), row in lines.items():
            fields = " ".join(row.get(sensor, "") for sensor in intel.SENSORS)
            file.write(f"2004-03-04 00:00:00.0 {epoch} {mote} {fields}\n")
    text = named_panel("intel-2epoch", tmp_path, exact=False).observations
    whole = named_panel("intel-2epoch", archive).observations
    part = whole.take((whole.codes[0] < 3) & (whole.codes[2] < 300))
    assert text.decode() == part.decode()
    assert np.array_equal(text.values, part.values)


LATER = "2004-02-28 01:03:16.33393 11 2 19.3024 38.4629 45.08 2.68742\n"
SITE = (
    "{site},{species},11/07/2002 00:00,96.1,ug m-3,R\n"
    "{site},{species},12/07/2002 00:00,90.5,ug m-3,R\n"
)
LINE = "2004-02-28 00:59:16.02785 3 1 19.9884 37.0933 45.08 2.69964\n"


def test_readings_with_underscores_are_no_numbers(tmp_path):
    lab = tmp_path / "data.txt"
    lab.write_text(LINE + LINE.replace(" 3 1 ", " 5 1_0 ") + LINE.replace("19.9884", "1_9.9"))
    assert intel.read(lab).report["broken_lines"] == 2
    london = tmp_path / "MY1.csv"
    london.write_text(HEADER + "MY1,NO2,11/07/2002 00:00,9_6,ug m-3,R\nMY1,CO,2002-07-12,1,x,R\n")
    with pytest.raises(DataError, match="single observation"):
        laqn.read(london)


def test_an_epoch_beyond_64_bits_is_a_broken_line(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text(LINE + LINE.replace(" 3 1 ", f" {10**20} 1 ") + LINE.replace(" 3 1 ", " 5 2 "))
    lab = intel.read(path)
    assert lab.report["broken_lines"] == 1
    assert len(lab.observations) == 8


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_field_that_is_too_long_is_a_sentence(tmp_path, quote):
    path = tmp_path / "MY1.csv"
    path.write_text(HEADER + f"{quote}{'x' * 140_000}{quote},NO2,11/07/2002 00:00,9,x,R\n")
    with pytest.raises(DataError, match=r"line 2: field larger than field limit"):
        laqn.read(path)


def test_files_of_the_lab_are_put_where_the_reader_looks(local, tmp_path):
    source = local("intel-lab", gzip.compress((LINE + LATER).encode()), b"1 21.5 23\n2 24.5 20\n")
    fetch.fetch(source, tmp_path, agree=yes)
    lab = read_panel(tmp_path / source.read)
    assert len(lab.observations) == 8
    assert lab.coordinates == {1: (21.5, 23.0), 2: (24.5, 20.0)}


def test_london_has_two_files_for_every_site(local, server, tmp_path):
    bodies = [
        HEADER.encode() + SITE.format(site="MY1", species=species).encode()
        for species in ("NO2", "SO2")
    ]
    source = local("laqn", *bodies).at(["MY1"])
    fetch.fetch(source, tmp_path, agree=yes)
    seen = read_panel(tmp_path / source.read).observations
    assert set(seen.decode()) == {
        ("MY1", kind, day) for kind in ("NO2", "SO2") for day in (11879, 11880)
    }
    assert all("site=MY1&" in path and "period=daily" in path for path in server[1])
    assert len(fetch.find("laqn").downloads()) == 2 * 15


def test_what_is_not_to_be_had_says_where_it_is(tmp_path):
    with pytest.raises(DataError, match=r"netflix cannot be fetched\. .*combined_data_4\.txt into"):
        fetch.fetch(fetch.find("netflix"), tmp_path, agree=yes)


@pytest.fixture(scope="module")
def motes(data_folder):
    return named_panel("intel-2epoch", data_folder / "intel_lab_5days.npz").observations


def test_the_failing_mote_and_the_noisy_ones_are_found_in_the_intel_lab(motes):
    some = motes.take(np.random.default_rng(0).random(len(motes)) < 0.3)
    places = noisy_places(noise_model(some, random_state=0), n=5)
    assert {18, 11, 13} <= set(places["id"].tolist())
    row = places["id"].tolist().index(18)
    assert places["worst"][row] == "temperature"
    assert places["drift"][row] == places["drift"].max()


def test_series_with_added_noise_are_found_in_the_intel_lab(motes):
    rng = np.random.default_rng(0)
    n_types = motes.shape[1]
    series = motes.codes[0] * n_types + motes.codes[1]
    bad = rng.permutation(motes.shape[0] * n_types)[:12]
    spread = np.array([motes.values[motes.codes[1] == kind].std() for kind in range(n_types)])
    noise = 0.6 * spread[motes.codes[1]] * rng.normal(size=len(motes))
    values = motes.values + np.where(np.isin(series, bad), noise, 0.0)
    kept = rng.random(len(motes)) < 0.4
    seen = Observations(motes.codes, values.astype(np.float32), motes.ids).take(kept)
    table = noisy_series(noise_model(seen, random_state=0), n=None)
    codes = [ids.lookup(table[ids.name]) for ids in motes.ids[:2]]
    is_bad = np.isin(codes[0] * n_types + codes[1], bad)
    above = table["noise"][is_bad][:, None] > table["noise"][~is_bad]
    assert above.mean() >= 0.96


def test_a_named_dataset_is_cut_from_its_file(tmp_path, capsys):
    (tmp_path / "small.csv").write_text("Site,Species,ReadingDateTime,Value\n")
    assert run("evaluate", tmp_path / "small.csv", "--dataset", "mars", "--share", 20) == 2
    assert "--dataset must be one of london-paper-size, intel-2epoch" in capsys.readouterr().err
    words = ["--dataset", "intel-2epoch", "--share", 20, "--id", "Site"]
    assert run("evaluate", tmp_path / "small.csv", *words) == 2
    assert "--id is not for a named dataset" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("intel_lab_5days", "Observations(1,890,817 of 52 location x 4 sensor x 14,400 time)"),
        ("london_laqn_daily", "Observations(2,955,027 of 130 location x 19 sensor x 10,957 time)"),
    ],
)
def test_archives_of_real_readings_have_the_published_counts(data_folder, name, expected):
    seen = read(data_folder / f"{name}.npz")
    assert repr(seen) == expected
    assert seen.nbytes <= (4 + 4 * seen.n_modes) * len(seen)
