// What the sanitizers should not report of Open MPI: its own locks, and what it never frees (it
// unloads its modules, so that their leaks cannot be told by name).

extern "C" const char* __tsan_default_suppressions() {  // NOLINT
  return "deadlock:mca_btl_tcp\n"
         "deadlock:mca_btl_vader\n"
         "mutex:mca_pml_ob1\n";
}

extern "C" const char* __asan_default_options() {
  return "detect_leaks=0";
}  // NOLINT
