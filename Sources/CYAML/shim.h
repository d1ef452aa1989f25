#ifndef APNS_WORKER_CYAML_SHIM_H
#define APNS_WORKER_CYAML_SHIM_H

#include <yaml.h>

#endif
