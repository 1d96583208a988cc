#include "unisono/base/crash/libdw.h"

#include <optional>

#include "unisono/base/error.h"
#include "unisono/base/loaded_library.h"

namespace unisono::crash {

std::optional<Libdw> load_libdw() {
  try {
    const LoadedLibrary file("libdw.so.1");
    Libdw library{};
    file.find("dwfl_linux_proc_find_elf", library.find_elf);
    file.find("dwfl_standard_find_debuginfo", library.find_debuginfo);
    file.find("dwfl_begin", library.begin);
    file.find("dwfl_linux_proc_report", library.report_process);
    file.find("dwfl_report_end", library.report_end);
    file.find("dwfl_addrmodule", library.module_at);
    file.find("dwfl_module_info", library.module_info);
    file.find("dwfl_module_addrname", library.function_at);
    file.find("dwfl_module_addrdie", library.unit_at);
    file.find("dwfl_module_nextcu", library.next_unit);
    file.find("dwarf_haspc", library.has_address);
    file.find("dwarf_getscopes", library.scopes_at);
    file.find("dwarf_getscopes_die", library.scopes_of);
    file.find("dwarf_tag", library.tag);
    file.find("dwarf_diename", library.name);
    file.find("dwarf_attr_integrate", library.attribute);
    file.find("dwarf_formstring", library.text);
    file.find("dwarf_formudata", library.number);
    file.find("dwarf_getsrc_die", library.line_at);
    file.find("dwarf_lineno", library.line_number);
    file.find("dwarf_linesrc", library.line_file);
    file.find("dwarf_getsrcfiles", library.files);
    file.find("dwarf_filesrc", library.file);
    return library;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace unisono::crash
