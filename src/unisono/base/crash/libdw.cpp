#include "unisono/base/crash/libdw.h"

#include <dlfcn.h>

#include <optional>

namespace unisono::crash {
namespace {

template <class Function>
bool find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  return function != nullptr;
}

}  // namespace

std::optional<Libdw> load_libdw() {
  void* const handle = ::dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return std::nullopt;
  }
  Libdw library{};
  const bool is_complete = find(handle, "dwfl_linux_proc_find_elf", library.find_elf) &&
                           find(handle, "dwfl_standard_find_debuginfo", library.find_debuginfo) &&
                           find(handle, "dwfl_begin", library.begin) &&
                           find(handle, "dwfl_linux_proc_report", library.report_process) &&
                           find(handle, "dwfl_report_end", library.report_end) &&
                           find(handle, "dwfl_addrmodule", library.module_at) &&
                           find(handle, "dwfl_module_info", library.module_info) &&
                           find(handle, "dwfl_module_addrname", library.function_at) &&
                           find(handle, "dwfl_module_addrdie", library.unit_at) &&
                           find(handle, "dwfl_module_nextcu", library.next_unit) &&
                           find(handle, "dwarf_haspc", library.has_address) &&
                           find(handle, "dwarf_getscopes", library.scopes_at) &&
                           find(handle, "dwarf_getscopes_die", library.scopes_of) &&
                           find(handle, "dwarf_tag", library.tag) &&
                           find(handle, "dwarf_diename", library.name) &&
                           find(handle, "dwarf_attr_integrate", library.attribute) &&
                           find(handle, "dwarf_formstring", library.text) &&
                           find(handle, "dwarf_formudata", library.number) &&
                           find(handle, "dwarf_getsrc_die", library.line_at) &&
                           find(handle, "dwarf_lineno", library.line_number) &&
                           find(handle, "dwarf_linesrc", library.line_file) &&
                           find(handle, "dwarf_getsrcfiles", library.files) &&
                           find(handle, "dwarf_filesrc", library.file);
  return is_complete ? std::optional(library) : std::nullopt;
}

}  // namespace unisono::crash
