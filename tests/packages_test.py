#!/usr/bin/env python3
"""Recipes of package managers agree with the build: packages_test.py SOURCE_DIR

The conda recipe is read by rattler-build itself, in an environment made from PyPI; where that
cannot be made, the test says so and skips. vcpkg's own checks need a checkout of vcpkg and are not
run.
"""
from __future__ import annotations

import json
import re
import sys
import unittest
from pathlib import Path
from typing import Any

import restart

PACKAGES = ["py-rattler-build==0.73.0"]
ROOT = Path(sys.argv[1])
# Names of meson.build's dependencies: in conda-forge, in vcpkg. None: part of the compiler.
NAMES = {
    "CLI11": ("cli11", "cli11"),
    "OpenCL": ("ocl-icd", "opencl"),
    "benchmark": ("benchmark", "benchmark"),
    "clblast": ("clblast", "clblast"),
    "dl": None,
    "fmt": ("fmt", "fmt"),
    "hwloc": ("libhwloc", "hwloc"),
    "libhwy": ("libhwy", "highway"),
    "nlohmann_json": ("nlohmann_json", "nlohmann-json"),
    "openmp": None,
    "threads": None,
}


def dependencies() -> set[str]:
    files = [path for path in ROOT.rglob("meson.build") if path.relative_to(ROOT).parts[0] in
             {"meson.build", "src", "bench", "kernels", "scripts"}]
    return {name for path in files
            for name in re.findall(r"\bdependency\('([^']+)'", path.read_text(encoding="utf-8"))}


def project_version() -> str:
    found = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


class Conda(unittest.TestCase):
    def recipe(self) -> dict[str, Any]:
        from rattler_build import Stage0Recipe
        rendered, = Stage0Recipe.from_file(ROOT / "packaging/conda/recipe.yaml").render()
        recipe: dict[str, Any] = rendered.recipe.to_dict()
        return recipe

    def test_the_recipe_renders_for_this_version(self) -> None:
        recipe = self.recipe()
        self.assertEqual(recipe["package"]["version"], project_version())
        self.assertEqual(recipe["package"]["name"], "rooflane")

    def test_the_recipe_has_every_dependency(self) -> None:
        host = {str(package).split()[0] for package in self.recipe()["requirements"]["host"]}
        for name in dependencies():
            with self.subTest(name):
                self.assertIn(name, NAMES)
                if NAMES[name] is not None:
                    self.assertIn(NAMES[name][0], host)


class Vcpkg(unittest.TestCase):
    PORT = ROOT / "packaging/vcpkg/rooflane"

    def manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads((self.PORT / "vcpkg.json").read_text("utf-8"))
        return manifest

    def test_the_manifest_is_of_this_version(self) -> None:
        self.assertEqual(self.manifest()["version"], project_version())

    def test_the_manifest_has_every_dependency(self) -> None:
        manifest = self.manifest()
        features = manifest["features"].values()
        listed = [*manifest["dependencies"], *(d for f in features for d in f["dependencies"])]
        ports = {d if isinstance(d, str) else d["name"] for d in listed}
        for name in dependencies():
            with self.subTest(name):
                self.assertIn(name, NAMES)
                if NAMES[name] is not None:
                    self.assertIn(NAMES[name][1], ports)

    def test_the_port_sets_options_that_exist(self) -> None:
        options = re.findall(r"option\('([^']+)'",
                             (ROOT / "meson_options.txt").read_text(encoding="utf-8"))
        used = re.findall(r"-D([\w-]+)=", (self.PORT / "portfile.cmake").read_text("utf-8"))
        self.assertGreater(len(used), 4)
        self.assertEqual([name for name in used if name not in options], [])


if __name__ == "__main__":
    restart.in_environment("packages-tests", PACKAGES)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
