// What the sanitizers should not report: libraries that are not built for them.

extern "C" const char* __tsan_default_suppressions() {  // NOLINT
  return "deadlock:mca_btl_tcp\n"
         "deadlock:mca_btl_vader\n"
         "mutex:mca_pml_ob1\n";
}

extern "C" const char* __lsan_default_suppressions() {  // NOLINT
  return "leak:libopen-pal\n"
         "leak:libopen-rte\n"
         "leak:libmpi.so\n"
         "leak:libpmix\n"
         "leak:libevent\n";
}
