"""Predicted against observed, on rounds made by hand."""

from __future__ import annotations

import pytest

from foredraft.bench.calibration import EDGES, Bucket, DraftCalibration
from foredraft.loop.tree import Tree
from tests.runtime.bench.made import a_round


def test_buckets_have_mean_prediction_share_and_count() -> None:
    calibration = DraftCalibration()
    calibration.add(a_round([0.84, 0.42], [0]))
    calibration.add(a_round([0.88, 0.44, 0.01], [0, 1]))
    calibration.add(a_round([0.86, 0.03], []))
    expected = [(0.01, 0, 1), (0.03, 0, 1), (0.43, 1 / 2, 2), (0.86, 2 / 3, 3)]
    assert [tuple(bucket) for bucket in calibration.buckets()] == [pytest.approx(row) for row in expected]


def test_limits_belong_to_the_bucket_above_and_1_to_the_last() -> None:
    calibration = DraftCalibration()
    calibration.add(a_round([1.0, 0.9, *sorted(EDGES[:-1], reverse=True), 0.0], []))
    assert calibration.samples == [1] * (len(EDGES) - 0) + [2]


def test_nothing_drafted_has_no_buckets() -> None:
    calibration = DraftCalibration()
    calibration.add(a_round([], []))
    assert calibration.buckets() == [] and Tree().probabilities == []


def test_parts_add_up() -> None:
    one, two = DraftCalibration(), DraftCalibration()
    one.add(a_round([0.5], [0]))
    two.add(a_round([0.5], []))
    assert DraftCalibration.total([one, two]).buckets() == [Bucket(0.5, 0.5, 2)]
    assert one.buckets() == [Bucket(0.5, 1.0, 1)]
