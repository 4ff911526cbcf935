// A user of the library, outside of it. The first line it prints is checked by run.sh.

#include <cstdio>

#include <ration/ration.hpp>

int main() {
  std::printf("ration %s\n%s", ration::version().c_str(), ration::build_summary().c_str());
}
