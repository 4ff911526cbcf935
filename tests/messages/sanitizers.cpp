// What the sanitizers should not report: libraries that are not built for them.

extern "C" const char* __tsan_default_suppressions() {  // NOLINT
  return "called_from_lib:libopen-pal\n"
         "called_from_lib:libopen-rte\n"
         "called_from_lib:libmpi.so\n";
}

extern "C" const char* __lsan_default_suppressions() {  // NOLINT
  return "leak:libopen-pal\n"
         "leak:libopen-rte\n"
         "leak:libmpi.so\n"
         "leak:libpmix\n"
         "leak:libevent\n";
}
