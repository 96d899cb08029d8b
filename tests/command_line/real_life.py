"""Ten files as people have them, made up here: each has a target that its other columns explain, and its own mess."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

Row = dict[str, object]


class Case(NamedTuple):
    """A file, the options that a user would give, and words that the notes must have."""

    name: str
    content: Callable[[], bytes]
    options: list[str]
    num_rows: int  # to predict
    notes: list[str]


def text_of(rows: list[Row], delimiter: str = ",", end: str = "\n", quoting: int = csv.QUOTE_MINIMAL) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def german(number: float) -> str:
    """1.234,50"""
    return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))


def holes(random: np.random.Generator, value: object, share: float, mark: str = "") -> object:
    return mark if random.random() < share else value


def apartments() -> bytes:
    """A German spreadsheet: semicolons, decimal commas, dates with dots, text, ids, holes."""
    random = np.random.default_rng(0)
    prices = {"Köln": 12.0, "Münster": 10.0, "Aachen": 8.0}
    rows: list[Row] = []
    for number in range(160):
        town, size = random.choice(list(prices)), random.uniform(20, 180)
        built = datetime(1950, 1, 1) + timedelta(days=int(random.integers(26_000)))
        rent = size * prices[town] + (built.year - 1950) + random.normal(0, 20)
        rows.append(
            {
                "Objekt": f"W-{number:05d}",
                "Stadt": town,
                "Baujahr": f"{built:%d.%m.%Y}",
                "Größe": holes(random, german(size), 0.05, "fehlt"),
                "Balkon": holes(random, random.choice(["ja", "nein"]), 0.3),
                "Miete": holes(random, german(rent), 0.03),
            }
        )
    return text_of(rows, ";", "\r\n").encode("utf-8-sig")


def sales() -> bytes:
    """An export of a shop: thousands commas, dollars, percentages, times with zones, gz."""
    random = np.random.default_rng(1)
    rows: list[Row] = []
    for number in range(180):
        day = datetime(2023, 1, 1) + timedelta(hours=6 * number)
        product, discount = random.integers(40), random.integers(30)
        revenue = 500 + 100 * product * (1 - discount / 100) + 300 * (day.month > 1) + random.normal(0, 80)
        rows.append(
            {
                "order_time": f"{day:%Y-%m-%dT%H:%M:%SZ}",
                "product": f"SKU {product:03d}",
                "discount": f"{discount}%",
                "is_member": random.choice(["True", "False"]),
                "revenue": f"${revenue:,.2f}",
            }
        )
    return gzip.compress(text_of(rows, quoting=csv.QUOTE_ALL).encode())


def survey() -> bytes:
    """Answers of people: free text with newlines and quotes, Latin-1, several marks of holes, a constant column."""
    random = np.random.default_rng(2)
    rows: list[Row] = []
    for _ in range(150):
        age, school = int(random.integers(18, 80)), random.choice(["école", "lycée", "université"])
        income = 1000 + 20 * age + 700 * ("u" in school[:1]) + random.normal(0, 150)
        comment = random.choice(['He said "no",\nand left', "très bien; merci", "", "—".replace("—", "ok")])
        rows.append(
            {
                "country": "FR",
                "age": holes(random, age, 0.1, random.choice(["NA", "?", "n/a", ""])),
                "school": school,
                "comment": comment,
                "income": holes(random, round(income, 1), 0.1, "NaN"),
            }
        )
    return text_of(rows).encode("latin-1")


def sensors() -> bytes:
    """Logs put one behind the other, each with its header; tabs; local times; a sensor that is off for days."""
    random = np.random.default_rng(3)
    parts = []
    for log in range(3):
        rows: list[Row] = []
        for hour in range(70):
            time = datetime(2024, 3, 1) + timedelta(hours=70 * log + hour)
            outside = 10 + 5 * np.sin(time.hour / 24 * 6.28) + random.normal()
            rows.append(
                {
                    "time": f"{time:%Y-%m-%d %H:%M}",
                    "outside": "" if log == 1 and hour < 40 else f"{outside:.2f}",
                    "valve": random.choice(["open", "shut"]),
                    "spare": "null",
                    "inside": f"{18 + 0.3 * outside + random.normal(0, 0.2):.3f}",
                }
            )
        parts.append(text_of(rows, "\t", "\r\n"))
    return "".join(parts).encode()


def frame() -> bytes:
    """What pandas writes with its index: a column without a name, booleans, zeros behind whole numbers with holes."""
    random = np.random.default_rng(4)
    rows: list[Row] = []
    for number in range(150):
        rooms, cabin = int(random.integers(1, 6)), random.choice(["A", "B", ""])
        fare = 20 * rooms + 30 * (cabin == "A") + random.normal(0, 5)
        rows.append({"": number, "rooms": holes(random, f"{rooms}.0", 0.1), "Cabin": cabin, "fare": round(fare, 2)})
    return text_of(rows).encode()


def orders() -> bytes:
    """American dates, bars, a byte order mark, hundreds of customers, in a zip archive."""
    random = np.random.default_rng(5)
    rows: list[Row] = []
    for _ in range(220):
        day, customer = datetime(2022, 1, 1) + timedelta(days=int(random.integers(700))), int(random.integers(120))
        days = 3 + customer % 7 + 2 * (day.month == 12) + random.normal(0, 0.5)
        rows.append(
            {
                "placed": f"{day:%m/%d/%Y}",
                "customer": f"customer no. {customer}",
                "items": int(random.integers(1, 9)),
                "days": f"{days:.2f}",
            }
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("orders.txt", text_of(rows, "|").encode("utf-8-sig"))
    return buffer.getvalue()


def excel() -> bytes:
    """What Excel saves: empty columns and lines at the end, Windows' encoding."""
    random = np.random.default_rng(6)
    lines = ["Länge;Material;Gewicht;;"]
    for _ in range(120):
        length, material = random.uniform(1, 90), random.choice(["Stahl", "Holz"])
        weight = length * (7.8 if material == "Stahl" else 0.7) + random.normal(0, 5)
        lines.append(f"{length:.1f};{material};{weight:.1f};;".replace(".", ","))
    lines += [";;;;"] * 5
    return "\r\n".join(lines).encode("cp1252")


def codes() -> bytes:
    """Text only: not a number but the target; one column has a level for nearly every row."""
    random = np.random.default_rng(7)
    rows: list[Row] = []
    for _ in range(160):
        make, color = random.choice(["audi", "bmw", "fiat", "ford"]), random.choice(["red", "blue", ""])
        plate = f"{random.choice(list('ABC'))}-{random.integers(150)}"
        price = {"audi": 9, "bmw": 10, "fiat": 4, "ford": 6}[make] + 0.5 * (color == "red") + random.normal(0, 0.5)
        rows.append({"make": make, "color": color, "plate": plate, "price": f"{price:.3f}k".replace("k", "")})
    return text_of(rows).encode()


def wide() -> bytes:
    """Sixty columns of measurements, most of them with holes, some empty, some constant, numbers with exponents."""
    random = np.random.default_rng(8)
    rows: list[Row] = []
    for _ in range(140):
        x = random.normal(size=60)
        row: Row = {f"m{i:02d}": holes(random, f"{value:.4e}", 0.02 * (i % 10)) for i, value in enumerate(x)}
        row |= {"m07": "", "m08": "0", "result": f"{2 * x[0] - x[1] + random.normal(0, 0.3):.4f}"}
        rows.append(row)
    return text_of(rows).encode()


def big() -> bytes:
    """100,000 rows of trips."""
    random = np.random.default_rng(9)
    number = 100_000
    zone, hour = random.integers(200, size=number), random.integers(24, size=number)
    miles, card = random.exponential(3, size=number), random.choice(["card", "cash", ""], size=number)
    fare = 3 + 2.5 * miles + 0.02 * zone + 4 * (hour > 20) + random.normal(0, 1, size=number)
    start = np.datetime64("2023-05-01T00:00") + np.arange(number) // 24 * np.timedelta64(60, "m")
    miles_text = np.where(random.random(number) < 0.02, "", np.char.mod("%.2f", miles))
    columns = np.char.add("trip ", np.char.mod("%06d", np.arange(number))), start, np.char.mod("zone %d", zone), hour
    lines = zip(*columns, miles_text, card, np.char.mod("%.2f", fare))
    return "\n".join(["trip,start,zone,hour,miles,paid,fare", *(",".join(map(str, line)) for line in lines)]).encode()


NO_ID = "left out: another text in every row, as an id has"
CASES = [
    Case(
        "apartments.csv",
        apartments,
        ["--target", "Miete"],
        160,
        [NO_ID, "rows without a target ('Miete')", "'fehlt' among its numbers", "numbers as 1.234,5"],
    ),
    Case(
        "sales.csv.gz",
        sales,
        ["--target", "revenue"],
        180,
        ["numbers as 1,234.5 %", "numbers as 1,234.5 $ (the target)"],
    ),
    Case("survey.csv", survey, ["--target", "income"], 150, ["always 'FR'", "without a target"]),
    Case("sensors.tsv", sensors, ["--target", "inside"], 210, ["spare    left out: empty"]),
    Case("frame.csv", frame, ["--target", "fare"], 150, ["left out: it counts the rows"]),
    Case("orders.zip", orders, ["--target", "days"], 220, []),
    Case("excel.csv", excel, ["--target", "Gewicht"], 120, ["numbers as 1.234,5"]),
    Case("codes.csv", codes, ["--target", "price", "--drop", "plate"], 160, []),
    Case("wide.csv", wide, ["--target", "result"], 140, ["m07     left out: empty", "m08     left out: always 0.0"]),
    Case("big.csv", big, ["--target", "fare", "--id", "trip"], 100_000, []),
]
