"""Tags the wheel for this platform: machine code, but none that depends on Python's version."""

import sysconfig

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class WithMachineCode(Distribution):
    """A package whose files go where those of one platform go."""

    def has_ext_modules(self) -> bool:
        """Yes: the extension and the binary, which setuptools does not build."""
        return True


class PlatformWheel(bdist_wheel):
    """A wheel for any Python 3 on one platform."""

    def get_tag(self) -> tuple[str, str, str]:
        """``py3-none-PLATFORM``."""
        return "py3", "none", sysconfig.get_platform().replace("-", "_").replace(".", "_")


setup(distclass=WithMachineCode, cmdclass={"bdist_wheel": PlatformWheel})
