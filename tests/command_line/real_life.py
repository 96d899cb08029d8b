"""Eight files as people have them, made up here: each has a target that its other columns explain, and its own mess."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

NUM_ROWS = 160


class Case(NamedTuple):
    """A file, its target, more options that a user would give, and words that the notes must have."""

    name: str
    content: Callable[[np.random.Generator], bytes]
    target: str
    options: list[str] = []
    notes: list[str] = []


def german(numbers: np.ndarray) -> list[str]:
    """1.234,50"""
    return [f"{number:,.2f}".translate(str.maketrans(",.", ".,")) for number in numbers]


def holes(random: np.random.Generator, values: object, share: float, mark: str = "") -> np.ndarray:
    return np.where(random.random(NUM_ROWS) < share, mark, np.asarray(values).astype(str))


def dates(start: str, numbers: object, unit: str, written: str) -> np.ndarray:
    return (pd.Timestamp(start) + pd.to_timedelta(numbers, unit=unit)).strftime(written)


def text_of(columns: dict[str, object], **options: object) -> str:
    return pd.DataFrame(columns).to_csv(index=False, **options)


def apartments(random: np.random.Generator) -> bytes:
    """A German spreadsheet: semicolons, decimal commas, dates with dots, text, ids, holes."""
    town, size, days = random.integers(3, size=NUM_ROWS), random.uniform(20, 180, NUM_ROWS), np.arange(NUM_ROWS) * 160
    columns = {
        "Objekt": [f"W-{number:05d}" for number in range(NUM_ROWS)],
        "Stadt": np.array(["Köln", "Münster", "Aachen"])[town],
        "Baujahr": dates("1950-01-01", days, "D", "%d.%m.%Y"),
        "Größe": holes(random, german(size), 0.05, "fehlt"),
        "Balkon": holes(random, random.choice(["ja", "nein"], NUM_ROWS), 0.3),
        "Miete": holes(random, german(size * (12 - 2 * town) + days / 365 + random.normal(0, 20, NUM_ROWS)), 0.03),
    }
    return text_of(columns, sep=";", lineterminator="\r\n").encode("utf-8-sig")


def sales(random: np.random.Generator) -> bytes:
    """An export of a shop: thousands commas, dollars, percentages, times with zones, gz."""
    product, discount = random.integers(40, size=NUM_ROWS), random.integers(30, size=NUM_ROWS)
    revenue = 500 + 100 * product * (1 - discount / 100) + random.normal(0, 80, NUM_ROWS)
    columns = {
        "order_time": dates("2023-01-01", 6 * np.arange(NUM_ROWS), "h", "%Y-%m-%dT%H:%M:%SZ"),
        "product": [f"SKU {number:03d}" for number in product],
        "discount": [f"{number}%" for number in discount],
        "is_member": random.choice(["True", "False"], NUM_ROWS),
        "revenue": [f"${number:,.2f}" for number in revenue],
    }
    return gzip.compress(text_of(columns, quoting=csv.QUOTE_ALL).encode())


def survey(random: np.random.Generator) -> bytes:
    """Answers of people: free text with newlines and quotes, Latin-1, several marks of holes, a constant column."""
    age, school = random.integers(18, 80, NUM_ROWS), random.choice(["école", "lycée", "université"], NUM_ROWS)
    income = (1000 + 20 * age + 700 * (school == "université") + random.normal(0, 150, NUM_ROWS)).round(1)
    columns = {
        "country": "FR",
        "age": holes(random, holes(random, age, 0.05, "n/a"), 0.05, "?"),
        "school": school,
        "comment": random.choice(['He said "no",\nand left', "très bien; merci", "", "ok"], NUM_ROWS),
        "income": holes(random, income, 0.1, "NaN"),
    }
    return text_of(columns).encode("latin-1")


def sensors(random: np.random.Generator) -> bytes:
    """Logs put one behind the other, each with its header; tabs; local times; a sensor that is off for days."""
    hours = np.arange(NUM_ROWS)
    outside = 10 + 5 * np.sin(hours / 24 * 6.28) + random.normal(size=NUM_ROWS)
    columns = {
        "time": dates("2024-03-01", hours, "h", "%Y-%m-%d %H:%M"),
        "outside": np.where((hours > 80) & (hours < 110), "", outside.round(2).astype(str)),
        "valve": random.choice(["open", "shut"], NUM_ROWS),
        "spare": "null",
        "inside": (18 + 0.3 * outside + random.normal(0, 0.2, NUM_ROWS)).round(3),
    }
    frame = pd.DataFrame(columns)
    return "".join(text_of(frame[part::2], sep="\t", lineterminator="\r\n") for part in (0, 1)).encode()


def frame(random: np.random.Generator) -> bytes:
    """What pandas writes with its index: a column without a name, zeros behind whole numbers with holes."""
    rooms, cabin = random.integers(1, 6, NUM_ROWS), random.choice(["A", "B", ""], NUM_ROWS)
    fare = (20 * rooms + 30 * (cabin == "A") + random.normal(0, 5, NUM_ROWS)).round(2)
    columns = {"rooms": pd.Series(rooms).where(random.random(NUM_ROWS) > 0.1), "Cabin": cabin, "fare": fare}
    return pd.DataFrame(columns).to_csv().encode()


def orders(random: np.random.Generator) -> bytes:
    """American dates, bars, a byte order mark, dozens of customers, in a zip archive."""
    placed, customer = random.integers(700, size=NUM_ROWS), random.integers(60, size=NUM_ROWS)
    columns = {
        "placed": dates("2022-01-01", placed, "D", "%m/%d/%Y"),
        "customer": [f"customer no. {number}" for number in customer],
        "items": random.integers(1, 9, NUM_ROWS),
        "days": (3 + customer % 7 + placed / 100 + random.normal(0, 0.5, NUM_ROWS)).round(2),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("orders.txt", text_of(columns, sep="|").encode("utf-8-sig"))
    return buffer.getvalue()


def excel(random: np.random.Generator) -> bytes:
    """What Excel saves: empty columns and lines at the end, Windows' encoding."""
    length, material = random.uniform(1, 90, NUM_ROWS), random.choice(["Stahl", "Holz"], NUM_ROWS)
    weight = length * np.where(material == "Stahl", 7.8, 0.7) + random.normal(0, 5, NUM_ROWS)
    columns = {"Länge": length, "Material": material, "Gewicht": weight, "": "", " ": ""}
    text = text_of(columns, sep=";", decimal=",", float_format="%.1f", lineterminator="\r\n")
    return (text.replace("; \r", ";\r") + 5 * ";;;;\r\n").encode("cp1252")


def wide(random: np.random.Generator) -> bytes:
    """Sixty columns of measurements, most of them with holes, one empty, one constant, numbers with exponents."""
    x = random.normal(size=(60, NUM_ROWS))
    columns = {f"m{i:02d}": holes(random, [f"{each:.4e}" for each in x[i]], 0.02 * (i % 10)) for i in range(60)}
    result = (2 * x[0] - x[1] + random.normal(0, 0.3, NUM_ROWS)).round(4)
    return text_of({**columns, "m07": "", "m08": "0", "result": result}).encode()


NO_ID = "left out: another text in every row, as an id has"
SMALL = [
    Case("apartments.csv", apartments, "Miete", [], [NO_ID, "without a target", "'fehlt' among its", "as 1.234,5"]),
    Case("sales.csv.gz", sales, "revenue", [], ["numbers as 1,234.5 %", "numbers as 1,234.5 $ (the target)"]),
    Case("survey.csv", survey, "income", [], ["always 'FR'", "without a target"]),
    Case("sensors.tsv", sensors, "inside", [], ["spare    left out: empty"]),
    Case("frame.csv", frame, "fare", [], ["left out: numbers of rows without a name"]),
    Case("orders.zip", orders, "days", [], ["dates as %m/%d/%Y"]),
    Case("excel.csv", excel, "Gewicht", [], ["numbers as 1.234,5"]),
    Case("wide.csv", wide, "result", [], ["m07     left out: empty", "m08     left out: always 0.0"]),
]
