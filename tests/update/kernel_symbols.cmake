# Fails when a kernel's object file defines a symbol that other object files could share: the linker
# would keep one copy, perhaps one of instructions that the CPU lacks.
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${NM} -C --defined-only --extern-only ${object} OUTPUT_VARIABLE symbols
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "[^\n]* [A-Z] ration::[a-z0-9_:]+::k(Arithmetic|Kernels)\n" "" rest "${symbols}")
  if(NOT rest STREQUAL "")
    message(FATAL_ERROR "${object} exports besides its table:\n${rest}")
  endif()
endforeach()
