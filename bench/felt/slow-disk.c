/* Adds SLOW_DISK_MS to every fsync and fdatasync, for LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static int wait_and(const char *name, int fd) {
  const char *ms = getenv("SLOW_DISK_MS");
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  if (ms) usleep(1000 * atoi(ms));
  return real(fd);
}
int fsync(int fd) { return wait_and("fsync", fd); }
int fdatasync(int fd) { return wait_and("fdatasync", fd); }
