"""A Hypothesis profile for mutants: the first failure is enough, nobody reads a smaller one."""

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "quick",
    deadline=None,
    derandomize=True,
    max_examples=200,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
