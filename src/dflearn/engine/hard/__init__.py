"""Single instances, as hard as they come: Clarabel, finished on the face of its answer, judged by the rule of `certify`."""
