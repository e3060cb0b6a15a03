"""Targets: files as loggers write them, with headers, dates and numbers of many countries."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from fuzz.harness import Target
from fuzz.readers import impute, text_target
from noisewise.cli import app
from noisewise.data.gapped import read_gapped
from noisewise.errors import NoisewiseError

HOURS = tuple(range(8))
GERMAN = "Messreihe;7;\n\nZeit;Halle;Dach\n" + "".join(
    f"{1 + h // 4:02}.03.2013 {h:02}:00;{'-' if h == 3 else f'{20 + h},5'};1.0{h}0,25\n"
    for h in HOURS
)
CAMPBELL = (
    '"TOA5","Mast","CR1000","123","OS","prog","77","Hourly"\n"TIMESTAMP","RECORD","T","P"\n'
    '"TS","RN","C","hPa"\n"","","Avg","Avg"\n'
) + "".join(f'"2013-03-01 {h:02}:00:00",{h},{"NAN" if h == 2 else h},1013.{h}\n' for h in HOURS)
DAVIS = "\t\tTemp\tHi\nDate\tTime\tOut\tTemp\n" + "".join(
    f"{h + 9}/03/13\t{h % 12 + 1}:00p\t{'---' if h == 4 else h}\t{h}.5\n".replace("p\t", " pm\t")
    for h in HOURS
)
AMERICAN = "Date,Hour,Site,A,B\n" + "".join(
    f'3/{h + 10}/2013,{h},{site},"1,20{h}.5",{"" if h == 1 else h}\n'
    for site in ("x", "y")
    for h in HOURS
)
HOME = "entity_id,state,last_changed\n" + "".join(
    f"sensor.{name},{'unavailable' if h == 5 else h},2013-03-01T0{h}:00:00.000Z\n"
    for name in ("heat", "damp")
    for h in HOURS
)
CALENDAR = "year;month;day;hour;a;b\n" + "".join(
    f"2013;3;1;{h};{'' if h == 3 else h};{-999 if h == 6 else h}\n" for h in HOURS
)


WRONG: tuple[dict[str, Any], ...] = (
    {"decimal": "."}, {"date_order": "mdy"}, {"header": 2}, {"header": 0}, {"encoding": "ascii"},
    {"delimiter": ","}, {"time": "Halle"}, {"location": "Zeit"}, {"value": "Dach"},
    {"missing": ["21,5", "x"]}, {"ignore": "Dach"},
)  # fmt: skip


def targets() -> list[Target]:
    """Make a target for every kind of file."""
    semicolons = (";", ";", ";", ",", "\t", "|")
    return [
        text_target("logger-german", GERMAN, semicolons, understand),
        text_target("logger-toa5", CAMPBELL, (",", ",", ";"), understand, ".dat"),
        text_target("logger-davis", DAVIS, ("\t", "\t", ","), understand, ".txt"),
        text_target("logger-american", AMERICAN, (",", ",", ";"), understand),
        text_target("logger-home", HOME, (",",), understand, ".csv.bz2"),
        text_target("logger-calendar", CALENDAR, semicolons, understand, ".csv.xz"),
        text_target("logger-options", GERMAN, semicolons, use_options),
        text_target("gaps-american", AMERICAN, (",",), show_gaps),
    ]


def understand(path: Path) -> None:
    """Fill the gaps of a file, and read what was written."""
    impute(path)
    read_gapped(path.with_name("filled" + "".join(path.suffixes)))


def use_options(path: Path) -> None:
    """Read a file that somebody said something wrong of."""
    for options in WRONG:
        with contextlib.suppress(NoisewiseError):
            read_gapped(path, **options)


def show_gaps(path: Path) -> None:
    """Show what is missing."""
    app(["gaps", str(path)], standalone_mode=False)
