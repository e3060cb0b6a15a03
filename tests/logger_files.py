"""Files as loggers, networks and spreadsheets of many countries write them: the same readings.

Two series over 60 hours from 11 March 2013: heat and damp. Heat misses hours 5 and 6, damp hour 20.
"""

import bz2
import datetime as dt
import gzip
import lzma
from typing import NamedTuple

HOURS = 60
START = dt.datetime(2013, 3, 11)
HEAT = [None if k in (5, 6) else 20 + (k * 7 % 11) / 4 for k in range(HOURS)]
DAMP = [None if k == 20 else 1040 + (k * 5 % 13) / 2 for k in range(HOURS)]
TIMES = [START + dt.timedelta(hours=k) for k in range(HOURS)]


class File(NamedTuple):
    """A file, and what it must be read as."""

    content: bytes
    suffix: str = ".csv"
    options: dict = {}  # noqa: RUF012
    series: tuple = ("heat", "damp")  # names that begin so, or of a long table the sensors
    start: dt.datetime = START
    asks: str = ""  # the option that must be given, in the words of the error


def number(value, decimal=".", missing="", thousands=""):
    if value is None:
        return missing
    whole, _, part = f"{value:.2f}".partition(".")
    if thousands and len(whole) > 3:
        whole = whole[:-3] + thousands + whole[-3:]
    return f"{whole}{decimal}{part}"


def wide(
    stamp="%Y-%m-%d %H:%M", head="time,heat,damp", delimiter=",", above="", units="", below="",
    before=(), after=(), end="\n", rows=HOURS, **numbers,
):  # fmt: skip
    """Write a row for each hour; ``stamp`` is a format, a function, or several for columns."""
    stamps = stamp if isinstance(stamp, tuple) else (stamp,)
    lines = []
    for k, when in enumerate(TIMES[:rows]):
        times = [one(when) if callable(one) else when.strftime(one) for one in stamps]
        values = [number(value[k], **numbers) for value in (HEAT, DAMP)]
        values = [f'"{v}"' if delimiter in v else v for v in values]
        first = [entry.format(k=k, n=k + 1) for entry in before]
        last = [entry.format(k=k, n=k + 1) for entry in after]
        lines.append(delimiter.join([*first, *times, *values, *last]))
    names = [head] if head else []
    return above + end.join([*names, *([units] if units else []), *lines]) + end + below


def long(row, head, above="", stamp="%Y-%m-%dT%H:%M:%SZ", missing="", end="\n", **numbers):
    """Write a row for each reading."""
    lines = [
        row.format(
            sensor=sensor, time=stamp(when) if callable(stamp) else when.strftime(stamp),
            value=number(value[k], missing=missing, **numbers),
        )
        for sensor, value in (("heat", HEAT), ("damp", DAMP))
        for k, when in enumerate(TIMES)
    ]  # fmt: skip
    return above + end.join([head, *lines]) + end


def american(when):
    return when.strftime("%m/%d/%y %I:%M:%S %p")


def ending(when):
    """Name an hour by its end, the last one of a day as 24:00."""
    later = when + dt.timedelta(hours=1)
    return "24:00" if later.hour == 0 else later.strftime("%H:%M")


def seconds(when):
    return str(int(when.replace(tzinfo=dt.UTC).timestamp()))


LATER = START + dt.timedelta(hours=1)
TOA5 = (
    '"TOA5","Mast","CR1000","12345","CR1000.Std.27","CPU:mast.CR1","5678","Hourly"\r\n'
    '"TIMESTAMP","RECORD","heat_Avg","damp_Avg"\r\n"TS","RN","Deg C","hPa"\r\n"","","Avg","Avg"\r\n'
)
HOBO = '"Plot Title: cellar"\n'
HOBO_HEAD = (
    '"#","Date Time, GMT+00:00","heat, °C (LGR S/N: 10123, SEN S/N: 9)","damp, mbar (LGR S/N: 1)",'
    '"Host Connected (LGR S/N: 10123)","End Of File (LGR S/N: 10123)"'
)
DAVIS = "\t\theat\tdamp\tWind\tWind\r\nDate\tTime\tOut\tBar\tDir\tSpeed\r\n"
AURN = (
    '"Data supplied by UK-AIR on 01/04/2013 12:00"\n"All data GMT hour ending"\n'
    '"Status: R = Ratified"\n\n,,"Leeds Centre",,,,,\n'
)
INFLUX = (
    "#group,false,false,true,true,false,false,true,true\n"
    "#datatype,string,long,dateTime:RFC3339,dateTime:RFC3339,dateTime:RFC3339,double,string,string\n"
    "#default,_result,,,,,,,\n"
)
DWD = "STATIONS_ID;MESS_DATUM;heat;damp;eor"


def files():
    """Return all files by name."""
    comma = {"delimiter": ";", "decimal": ","}
    semi = "Datum;heat;damp"
    found = {
        "plain": File(wide().encode()),
        "iso zone": File(wide("%Y-%m-%dT%H:%M:%SZ").encode()),
        "iso offset": File(wide("%Y-%m-%dT%H:%M:%S+0100").encode(),
                           start=START - dt.timedelta(hours=1)),
        "dashes": File(wide(missing="-").encode()),
        "NA of R": File(
            wide(missing="NA", before=('"{n}"',), head='"","time","heat","damp"').encode()),
        "tabs": File(wide(delimiter="\t", head="time\theat\tdamp").encode(), ".tsv"),
        "pipes": File(wide(delimiter="|", head="time|heat|damp").encode(), ".txt"),
        "gzip": File(gzip.compress(wide().encode()), ".csv.gz"),
        "bzip2": File(bz2.compress(wide().encode()), ".csv.bz2"),
        "xz": File(lzma.compress(wide().encode()), ".csv.xz"),
        "code": File(wide(missing="-999").encode(), options={"missing": -999}),
        "epoch seconds": File(wide(seconds, "ts,heat,damp").encode()),
        "epoch milliseconds": File(wide(lambda t: seconds(t) + "000").encode()),
        "germany, Excel": File(
            ("\ufeff" + wide("%d.%m.%Y %H:%M", semi, end="\r\n", **comma)).encode()),
        "germany, Windows": File(
            wide("%d.%m.%Y %H:%M", "Zeit;heat [°C];damp [hPa]", thousands=".", **comma)
            .encode("cp1252")),
        "germany, UBA": File(
            wide(("'%d.%m.%Y", ending), 'Stationscode;Datum;Uhrzeit;"heat in °C";damp;Index',
                 before=("DEBE010",), after=("gut",), delimiter=";", missing="-")
            .replace("'", "").encode(), start=LATER),
        "germany, DWD": File(
            wide("%Y%m%d%H", DWD, before=("     399",), after=("eor",), delimiter=";",
                 missing="  -999").encode(),
            ".txt", options={"missing": "-999"}),
        "france": File(
            wide(("%d/%m/%Y", "%Hh%M"), "Date;Heure;heat;damp", **comma).encode("cp1252")),
        "italy": File(wide("%d/%m/%Y %H.%M", "Data/Ora;heat;damp", **comma).encode()),
        "spain": File(wide(("%d/%m/%Y", "%H:%M"), "FECHA;HORA;heat;damp", missing="s/d", **comma)
                      .encode("cp1252")),
        "brazil": File(wide("%d-%m-%Y %H:%M", "Data;heat;damp", thousands=".", **comma).encode()),
        "netherlands": File(wide(("%Y%m%d", "%-H"), "# comment\nYYYYMMDD,HH,heat,damp",
                                 above="# Bron: KNMI\n#\n").encode(), ".txt"),
        "sweden": File(wide(("%Y-%m-%d", "%H:%M:%S"), "Datum;Tid (UTC);heat;damp;;Tidsutsnitt:",
                            after=("", ""), above="Stationsnamn;Klimatnummer\nLund;53430\n\n",
                            delimiter=";").encode()),
        "poland": File(
            wide("%d.%m.%y %H:%M", "Czas;heat;damp", thousands="\u00a0", **comma).encode()),
        "switzerland": File(wide("%d.%m.%Y %H:%M", semi, delimiter=";", thousands="'").encode()),
        "china": File(wide(("%Y", "%-m", "%-d", "%-H"), "No,year,month,day,hour,heat,damp",
                           before=("{n}",), missing="NA").encode()),
        "japan": File(wide("%Y/%m/%d %-H:%M", "年月日時,heat(℃),damp(hPa)").encode("shift_jis"),
                      options={"encoding": "shift_jis"}),
        "USA": File(wide("%m/%d/%Y %H:%M", "Date Time,heat,damp").encode()),
        "USA, Excel": File(wide("%-m/%-d/%Y %-I:%M %p", thousands=",").encode()),
        "UK": File(wide("%d/%m/%Y %H:%M").encode()),
        "month names": File(wide("%d-%b-%Y %H:%M").encode()),
        "UK, AURN": File(
            wide(("%d-%m-%Y", ending), "Date,Time,heat,damp,status,unit,status", above=AURN,
                 after=("R", "ugm-3", "P"), missing="No data", below="End\n")
            .encode(), start=LATER),
        "UTF-16 of Excel": File(
            wide(delimiter="\t", head="time\theat\tdamp").encode("utf-16"), ".txt"),
        "Campbell TOA5": File(
            wide('"%Y-%m-%d %H:%M:%S","{n}"', "", above=TOA5, missing='"NAN"', end="\r\n")
            .encode(), ".dat"),
        "Onset HOBO": File(
            wide(american, HOBO_HEAD, above=HOBO, before=("{n}",), after=("", ""))
            .encode(), start=START),
        "Davis WeatherLink": File(
            wide(("%-d/%m/%y", "%H:%M"), "", above=DAVIS, delimiter="\t", missing="---",
                 after=("NNE", "3"), end="\r\n").encode(), ".txt",
            series=("heat", "damp", "Wind S")),
        "Vaisala": File(
            wide("%Y-%m-%d %H:%M:%S", "Timestamp;heat [°C];damp [hPa]", delimiter=";",
                 above="Device;HMT330\nSerial number;X123\nLocation;52.5;13.4\n\n").encode()),
        "HOBOlink": File(
            wide("%m/%d/%y %H:%M:%S", '"Line#","Date","heat, °C","damp, mbar"', before=("{n}",))
            .encode()),
        "Excel, padded": File(
            wide("%d.%m.%Y %H:%M", semi, above="Messreihe 7;;\nKeller;;\n;;\n", below=";;\n;;\n",
                 **comma).encode()),
        "sep line": File(wide("%d.%m.%Y %H:%M", semi, above="sep=;\r\n", **comma).encode()),
        "ThingSpeak": File(
            wide(("%Y-%m-%d %H:%M:%S UTC", lambda t: str(t.hour + 24 * t.day)),
                 "created_at,entry_id,heat,damp").encode()),
        "Grafana": File(wide('"%Y-%m-%d %H:%M:%S"', '"Time","heat","damp"').encode()),
        "no names": File(wide(head="").encode(), series=("column 2", "column 3")),
        "named by numbers": File(wide(head="time,1,2").encode(), series=("1", "2")),
        "comments": File(
            wide(above="# one, two\n# three\n")
            .replace("\n2013-03-12 00:00", "\n# new day\n2013-03-12 00:00").encode()),
        "Home Assistant": File(
            long("sensor.{sensor},{value},{time}", "entity_id,state,last_changed",
                 stamp="%Y-%m-%dT%H:%M:%S.000Z", missing="unavailable").encode(),
            series=("sensor.heat", "sensor.damp")),
        "InfluxDB": File(
            long(",,0,2013-03-01T00:00:00Z,2013-04-01T00:00:00Z,{time},{value},{sensor},air",
                 ",result,table,_start,_stop,_time,_value,_field,_measurement", above=INFLUX)
            .encode()),
        "Luftdaten": File(
            long("7;BME280;3;48.8;9.1;{time};{sensor};{value}",
                 "sensor_id;sensor_type;location;lat;lon;timestamp;value_type;value",
                 stamp="%Y-%m-%dT%H:%M:%S").encode()),
        "EPA AQS": File(
            long('"06","037","0002","44201",1,34.1,-118.2,"NAD83","{sensor}",{time},{value},"C"',
                 '"State Code","County Code","Site Num","Parameter Code","POC","Latitude",'
                 '"Longitude","Datum","Parameter Name","Date Local","Time Local",'
                 '"Date GMT","Time GMT",'
                 '"Sample Measurement","Units of Measure"',
                 stamp=lambda t: (t - dt.timedelta(hours=8)).strftime('"%Y-%m-%d","%H:%M",')
                 + t.strftime('"%Y-%m-%d","%H:%M"')).encode()),
        "Grafana, series": File(
            long('"{sensor}";{time};{value}', '"Series";"Time";"Value"',
                 stamp="%Y-%m-%dT%H:%M:%S+00:00", missing="null").encode()),
    }  # fmt: skip
    return found | spaced() | rarer() | doubtful()


def rarer():
    """Return files with days of the year, sums below the table, and in encodings without a mark."""
    numbered = wide(before=('"{n}"',), head='"time","heat","damp"', missing="NA")
    total = "Total:,1200.25,62400.50\nMean,20.00,1040.01\n"
    middle = wide().replace(f"{TIMES[24]:%Y-%m-%d %H:%M}", total + f"{TIMES[24]:%Y-%m-%d %H:%M}", 1)
    fraction = wide(("%Y", lambda t: f"{t.timetuple().tm_yday + t.hour / 24:.4f}"),
                    "Year,DOY,heat,damp")  # fmt: skip
    return {
        "Campbell, hours and minutes": File(
            wide(("%Y", "%-j", "%-H%M"), "Year,Day_of_Year,Hour_Minute_RTM,heat,damp").encode()),
        "day of the year": File(wide(("%Y", "%j", "%H"), "YEAR,JDAY,HOUR,heat,damp").encode()),
        "day of the year and its part": File(fraction.encode()),
        "time without colons": File(wide("%Y%m%dT%H%M%SZ").encode()),
        "UTF-16 without a mark": File(wide().encode("utf-16-be")),
        "UTF-32": File(wide().encode("utf-32")),
        "Excel's words": File(wide(delimiter=";", head="Zeit;heat;damp", missing="#NV").encode()),
        "sums below the table": File(wide(below=total).encode()),
        "sums of every day": File(middle.encode()),
        "write.table of R": File(numbered.encode()),
        "a format below the names": File(wide(units="yyyy-mm-dd hh:mm,°C,hPa").encode()),
    }  # fmt: skip


def spaced():
    """Return files with spaces between fields, rows of other lengths, and names in other ways."""
    lascar = wide("%Y-%m-%d %H:%M:%S", "EL-USB-2,Time,heat(°C),damp(mb),Serial Number",
                  before=("{n}",))  # fmt: skip
    first = lascar.splitlines()[1]
    with_units = "Time,heat,damp\n" + "".join(
        f"{when:%m/%d/%Y %H:%M},{number(a) + ' °F' * (a is not None)},"
        f"{number(b) + ' mb' * (b is not None)}\n"
        for when, a, b in zip(TIMES, HEAT, DAMP, strict=True)
    )
    levels = ",house,house\n,heat,damp\ntime,,\n"
    return {
        "NOAA buoys": File(
            wide(("%Y", "%m", "%d", "%H", "%M"), "#YY  MM DD hh mm  heat   damp", delimiter="  ",
                 units="#yr  mo dy hr mn  degC    hPa", missing="999.9").encode(), ".txt",
            options={"missing": 999.9}),
        "spaces": File(wide("%Y-%m-%d %H:%M", "Date Time heat damp", delimiter=" ", missing="NaN")
                       .encode(), ".dat"),
        "Lascar EasyLog": File(lascar.replace(first, first + ",010012345", 1).encode("cp1252"),
                               ".txt"),
        "pandas, levels": File(wide(head="", above=levels).encode(), series=("house h", "house d")),
        "EEA": File(
            wide(("%Y-%m-%d %H:%M:%S +01:00", lambda t: f"{t + dt.timedelta(hours=1)} +01:00"),
                 "Country,DatetimeBegin,DatetimeEnd,heat,damp", before=("DE",)).encode(),
            start=START - dt.timedelta(hours=1)),
        "units in cells": File(with_units.encode()),
        "Netatmo": File(
            wide((seconds, "%Y/%m/%d %H:%M:%S"), 'Timestamp;"Timezone : Etc/UTC";heat;damp',
                 above="Nom\nSalon\n", delimiter=";").encode()),
        "seconds without a name": File(wide(seconds, ",heat,damp").encode()),
        "OpenAQ": File(
            long("Leeds,GB,{time},{sensor},{value},C,53.8,-1.5",
                 "location,country,utc,parameter,value,unit,latitude,longitude").encode()),
    }  # fmt: skip


def doubtful():
    """Return files that cannot be understood without an option, and what they ask for."""
    daily = [START.replace(month=month, day=3) for month in range(1, 13)]
    rows = "".join(f"{t:%d/%m/%Y},{k}.5\n" for k, t in enumerate(daily))
    threes = "".join(f"{t:%d.%m.%Y %H:%M};{k + 1},250\n" for k, t in enumerate(TIMES))
    return {
        "days or months": File(("Date,heat\n" + rows).encode(), asks="date_order='dmy'"),
        "thousands or decimals": File(("Zeit;heat\n" + threes).encode(), asks="decimal=','"),
        "two times": File(
            wide(("%Y-%m-%d %H:%M", "%Y-%m-%d %H:00"), "logged time,sent time,heat,damp").encode(),
            asks="time="),
        "a word": File(wide(missing="broken").encode(), asks="missing='broken'"),
    }  # fmt: skip
