"""Tags the wheel for this platform: machine code, but none that depends on Python's version."""

import sysconfig

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel


class PlatformWheel(bdist_wheel):
    """A wheel for any Python 3 on one platform."""

    def finalize_options(self) -> None:
        """Marks the wheel as holding machine code."""
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        """``py3-none-PLATFORM``."""
        return "py3", "none", sysconfig.get_platform().replace("-", "_").replace(".", "_")


setup(cmdclass={"bdist_wheel": PlatformWheel})
