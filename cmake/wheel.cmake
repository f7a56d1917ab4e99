# The installation inside of a wheel of Python; pyproject.toml describes the wheel.
#
# A wheel contains no symbolic links, so the shared library is one file, libheddle.so.N. For the
# linker, libheddle.so is a text that names this file. The wheel lacks the static library, because
# that library would contain the folder in which the wheel was built.
set(installed_libraries heddle)
set(namelink NAMELINK_SKIP)
set_target_properties(heddle PROPERTIES VERSION ${heddle_abi})
file(WRITE ${PROJECT_BINARY_DIR}/wheel/libheddle.so "INPUT(libheddle.so.${heddle_abi})\n")
