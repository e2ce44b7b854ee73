"""Benchmarks: one file per claim, `python -m benchmarks` lists them, `python -m benchmarks NAME` runs one.

A benchmark is a module of this folder with a docstring, whose first line is what the list shows, and one function:

    def run(bench: Bench) -> Report: ...

`Bench` says how large to run and takes progress; `Report` collects figures, goals and tables. Both, and the helpers
that measure, come from `benchmarks.harness`. A name with a leading underscore is a helper, not a benchmark.

Figures are of one machine at one moment. What holds elsewhere is a ratio to a baseline measured in the same run,
which is why goals are stated on ratios wherever they can be.
"""
