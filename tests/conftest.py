"""How every test runs: eight CPU devices, and JAX's strictest promotion of dtypes."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

import jax
from hypothesis import settings

jax.config.update("jax_numpy_dtype_promotion", "strict")

# compiling makes an example's time vary a thousandfold
settings.register_profile("lazyrows", deadline=None, max_examples=60, print_blob=True)
settings.load_profile("lazyrows")
