"""The doctor: why training does not move, in numbers and in plain sentences."""

from dflearn.doctor.diagnosis import Diagnosis, Finding
from dflearn.doctor.examination import diagnose

__all__ = ["Diagnosis", "Finding", "diagnose"]
