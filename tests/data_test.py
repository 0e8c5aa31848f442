#!/usr/bin/env python3
"""What data users rely on: data_test.py ROOFLANE_WITH_FAKES ROOFLANE.

The CSV opens in pandas and DuckDB with the types that `rooflane schema` names, and the JSON of
each verb is valid by its schema. Runs itself in an environment with these packages, made from PyPI;
exits with 77 (skipped) where PyPI cannot be reached.
"""
from __future__ import annotations

import copy
import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest

import restart
import skip
import tiny_llama as tiny

PACKAGES = ["pandas", "duckdb", "jsonschema"]
STATUSES = ["PASSED", "FAILED", "SKIPPED", "UNSUPPORTED", "TIMEOUT", "BUILD_ERROR",
            "RUNTIME_ERROR", "SUSPECT"]
NASTY = 'two, "quoted"; <b>bold</b>\nsecond line, é'


class DataUsers(unittest.TestCase):
    """One run with rows of all statuses, as CSV and JSON, and its schema."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.csv = os.path.join(folder.name, "rows.csv")
        cls.json = os.path.join(folder.name, "rows.json")
        variants = "scalar,hwy,fake-zeros,fake-unsupported,fake-exit,fake-hang,fake-too-fast"
        done = subprocess.run(
            [ROOFLANE, "bench", "--shape", "softmax:rows=64,cols=512", "--shape",
             "gemm:m=96,n=96,k=96", "-v", variants, "--threads", "1", "--min-time", "0.001",
             "--launches", "1", "--ceilings-time", "0.1", "--timeout", "6", "--csv", cls.csv,
             "--json", cls.json],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 1:  # the fakes' failures
            raise RuntimeError(f"exit status {done.returncode}: {done.stderr}")
        with open(cls.csv, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        # Statuses that no fake brings about, and text that needs quoting.
        for status in STATUSES:
            if status not in {row["status"] for row in rows}:
                failed = next(row for row in rows if row["status"] == "FAILED")
                rows.append({**failed, "status": status, "reason": NASTY})
        with open(cls.csv, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        cls.rows = rows
        cls.schema = cls.output_of("schema")
        with open(cls.json, encoding="utf-8") as file:
            cls.document = json.load(file)

    @staticmethod
    def output_of(*arguments: str) -> dict:
        """What the program prints, as JSON. The fake one has no runner beside it for `judge`."""
        program = JUDGE if arguments[0] == "judge" else ROOFLANE
        return json.loads(subprocess.run([program, *arguments], stdout=subprocess.PIPE,
                                         check=True).stdout)

    def types(self) -> dict[str, str]:
        """Column -> string, integer or number, by the schema."""
        properties = self.schema["$defs"]["row"]["properties"]
        return {name: (column["type"] if isinstance(column["type"], str) else column["type"][0])
                for name, column in properties.items()}

    def check_values(self, column: str, kind: str, values: list) -> None:
        """What a reader made of a column against the text of its cells; None: empty."""
        self.assertEqual(len(values), len(self.rows), column)
        for row, value in zip(self.rows, values):
            text = row[column]
            with self.subTest(column=column, text=text):
                if text == "":
                    self.assertIsNone(value)
                else:
                    self.assertEqual(value, {"string": str, "integer": int,
                                             "number": float}[kind](text))

    def numeric_columns_with_values(self) -> list[str]:
        return [name for name, kind in self.types().items()
                if kind != "string" and any(row[name] for row in self.rows)]

    def test_the_rows_have_every_status_and_the_columns_of_the_schema(self):
        self.assertEqual({row["status"] for row in self.rows}, set(STATUSES))
        self.assertEqual(list(self.rows[0]), list(self.types()))

    def test_pandas_reads_every_column_with_its_type(self):
        import pandas
        as_pandas = {"string": "string", "integer": "Int64", "number": "float64"}
        frame = pandas.read_csv(self.csv, keep_default_na=False, na_values=[""],
                                dtype={n: as_pandas[kind] for n, kind in self.types().items()})
        for column, kind in self.types().items():
            self.assertEqual(str(frame[column].dtype).split("[")[0], as_pandas[kind], column)
            self.check_values(column, kind, [None if pandas.isna(value) else value
                                             for value in frame[column]])

    def test_pandas_sees_numbers_without_being_told(self):
        import pandas
        frame = pandas.read_csv(self.csv)
        self.assertEqual(len(frame), len(self.rows))
        for column in self.numeric_columns_with_values():
            self.assertTrue(pandas.api.types.is_numeric_dtype(frame[column]), column)
            self.assertEqual(int(frame[column].isna().sum()),
                             sum(row[column] == "" for row in self.rows), column)
        for column in ["status", "reason", "kernel", "variant", "shape", "test_time"]:
            self.assertFalse(pandas.api.types.is_numeric_dtype(frame[column]), column)
        passed = frame[frame.status == "PASSED"]
        self.assertTrue((passed.groupby("kernel").p50_ns.min() > 0).all())

    def test_duckdb_reads_every_column_with_its_type(self):
        import duckdb
        as_sql = {"string": "VARCHAR", "integer": "BIGINT", "number": "DOUBLE"}
        types = {name: as_sql[kind] for name, kind in self.types().items()}
        table = duckdb.read_csv(self.csv, header=True, dtype=types)
        self.assertEqual(dict(zip(table.columns, map(str, table.types))), types)
        for column, values in zip(table.columns, zip(*table.fetchall())):
            self.check_values(column, self.types()[column], list(values))

    def test_duckdb_sees_numbers_without_being_told(self):
        import duckdb
        table = duckdb.query(f"select * from '{self.csv}'")
        types = dict(zip(table.columns, map(str, table.types)))
        for column in self.numeric_columns_with_values():
            self.assertIn(types[column], ("BIGINT", "DOUBLE"), column)
        for column in ["status", "reason", "kernel", "variant", "shape"]:
            self.assertEqual(types[column], "VARCHAR", column)
        fastest = duckdb.query(f"select kernel, min(p50_ns) from '{self.csv}' "
                               "where status = 'PASSED' group by kernel").fetchall()
        self.assertEqual({kernel for kernel, _ in fastest}, {"softmax", "gemm"})
        self.assertTrue(all(time > 0 for _, time in fastest))

    def test_samples_join_their_rows(self):
        import duckdb
        import pandas
        samples = pandas.read_csv(self.csv + ".samples.csv")
        for column in ["row", "launch", "round", "ns", "probe_ns"]:
            self.assertTrue(pandas.api.types.is_numeric_dtype(samples[column]), column)
        for position, group in samples.groupby("row"):
            if self.rows[position]["status"] == "PASSED":
                self.assertEqual(len(group), int(self.rows[position]["n_samples"]))
        counted = duckdb.query(f"select count(*) from '{self.csv}.samples.csv'").fetchall()
        self.assertEqual(counted, [(len(samples),)])

    def errors(self, document, schema: dict | None = None) -> list[str]:
        import jsonschema
        validator = jsonschema.Draft202012Validator(schema or self.schema)
        return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]

    def judged(self) -> str:
        """A source that is right."""
        source = os.path.join(os.path.dirname(self.csv), "softmax.c")
        with open(source, "w", encoding="utf-8") as file:
            subprocess.run([ROOFLANE, "judge", "--template", "softmax"], stdout=file, check=True)
        return source

    def documents(self) -> dict[str, tuple[dict, dict]]:
        """Verb -> a document and its schema."""
        verbs = {"list": ["--shape", "gemm:m=8,n=8,k=8,beta=1"], "doctor": [],
                 "ceilings": ["--threads", "1", "--seconds", "0.5"],
                 "calibrate": ["--threads", "1", "--seconds", "0.1"],
                 "compare": [self.csv, self.csv], "roofline": [self.csv],
                 "judge": [self.judged(), "-k", "softmax", "--shape", "softmax:rows=4,cols=64",
                           "--against", "hwy", "--budget", "0.3", "--hidden", "1", "--unsafe",
                           "--archive", os.path.join(os.path.dirname(self.csv), "attempts")]}
        made = {verb: (self.output_of(verb, "--json", *arguments), self.output_of("schema", verb))
                for verb, arguments in verbs.items()}
        folder = os.path.dirname(self.csv)
        model, told = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "told.json")
        with open(model, "wb") as file:
            file.write(tiny.file_of(tiny.metadata(), tiny.tensors()))
        subprocess.run([ROOFLANE, "generate", "--weights", model, "--ids", "1,2", "--tokens", "9",
                        "--ignore-end", "--draft", "ngram", "--json", told], check=True,
                       stdout=subprocess.DEVNULL)
        with open(told, encoding="utf-8") as file:
            made["generate"] = (json.load(file), self.output_of("schema", "generate"))
        return {"bench": (self.document, self.schema), **made}

    def test_a_real_document_of_each_verb_is_valid_and_described_field_by_field(self):
        import jsonschema
        for verb, (document, schema) in self.documents().items():
            with self.subTest(verb):
                jsonschema.Draft202012Validator.check_schema(schema)
                self.assertEqual(self.errors(document, schema), [])
                self.check_described(document, schema, schema, "$")
                self.assertNotEqual(self.errors({**document, "schema_version": 2}, schema), [])
                for field in document:
                    less = {name: value for name, value in document.items() if name != field}
                    self.assertNotEqual(self.errors(less, schema), [], field)

    def test_a_file_of_tuned_schedules_is_valid(self):
        entry = {"kernel": "gemm", "variant": "hwy", "shape": "gemm:m=8,n=8,k=8", "math": "fp32",
                 "threads": 1, "isa": "AVX2", "device": "", "tuning": "path=4"}
        whole = entry | {"default": "path=3", "exact": True, "build": "abc",
                         "ratio": {"value": 0.9, "low": 0.8, "high": 1},
                         "time": "2026-01-31T12:00:00Z"}
        machine = self.output_of("doctor", "--json")["tuned"]["machine"]
        document = {"rooflane_tuned": 1, "machine": machine, "entries": [entry, whole]}
        schema = self.output_of("schema", "tuned")
        self.assertEqual(self.errors(document, schema), [])
        self.check_described(document, schema, schema, "$")
        for spoiled in [{**document, "rooflane_tuned": 2}, {**document, "entries": [{}]},
                        {**document, "entries": [{**entry, "threads": -1}]}]:
            self.assertNotEqual(self.errors(spoiled, schema), [])

    def check_described(self, value, schema: dict, root: dict, where: str) -> None:
        """Every field of a document is in its schema."""
        while "$ref" in schema:
            schema = root["$defs"][schema["$ref"].split("/")[-1]]
        self.assertIn("type", schema, where)
        if isinstance(value, list):
            for i, item in enumerate(value):
                self.check_described(item, schema["items"], root, f"{where}[{i}]")
        elif isinstance(value, dict):
            for name, inner in value.items():
                known = schema.get("properties", {})
                if name not in known and "additionalProperties" in schema:
                    self.check_described(inner, schema["additionalProperties"], root,
                                         f"{where}.{name}")
                    continue
                self.assertIn(name, known, where)
                self.check_described(inner, known[name], root, f"{where}.{name}")

    def test_spoiled_documents_are_not_valid(self):
        def spoiled(spoil):
            document = copy.deepcopy(self.document)
            spoil(document)
            return document

        def set_in_row(name, value):
            return lambda document: document["rows"][0].update({name: value})

        spoilers = {
            "no rows": lambda d: d.pop("rows"),
            "rows are no list": lambda d: d.update(rows={}),
            "another version": lambda d: d.update(schema_version=2),
            "a row of another version": set_in_row("schema_version", 2),
            "a number as text": set_in_row("p50_ns", "12.5"),
            "a fraction of a thread": set_in_row("threads", 1.5),
            "an unknown status": set_in_row("status", "GOOD"),
            "no status": set_in_row("status", None),
            "an unknown bound": set_in_row("bound", "luck"),
            "text as a number": set_in_row("kernel", 7),
            "a row without a column": lambda d: d["rows"][0].pop("roof_pct"),
            "a row that is no object": lambda d: d["rows"].append("row"),
            "no context": lambda d: d.pop("context"),
            "no machine": lambda d: d["context"].pop("machine"),
            "cores as text": lambda d: d["context"]["machine"].update(physical_cores="2"),
            "an environment of numbers":
                lambda d: d["context"]["workers"][0]["environment"].update(OMP_NUM_THREADS=1),
            "a peak without a speed": lambda d: d["context"]["ceilings"]["fma"][0].pop("gflops"),
            "a point without a footprint":
                lambda d: d["context"]["ceilings"]["bandwidth"][0]["points"][0].pop(
                    "footprint_bytes"),
            "a warning that is no text":
                lambda d: d["context"]["ceilings"]["warnings"].append(3),
        }
        for name, spoil in spoilers.items():
            with self.subTest(name):
                self.assertNotEqual(self.errors(spoiled(spoil)), [])

    def test_appended_columns_do_no_harm(self):
        document = copy.deepcopy(self.document)
        document["rows"][0]["a_later_column"] = 1
        self.assertEqual(self.errors(document), [])


if __name__ == "__main__":
    ROOFLANE, JUDGE = (os.path.abspath(word) for word in sys.argv[1:3])
    restart.in_environment("data-tests", PACKAGES)
    skip.main(sys.argv[:1], verbosity=1)
