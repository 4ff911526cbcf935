#pragma once
// Everything a trainer needs.

#include <ration/checkpoint.hpp>
#include <ration/config.hpp>
#include <ration/dtype.hpp>
#include <ration/error.hpp>
#include <ration/initialize.hpp>
#include <ration/launch.hpp>
#include <ration/log.hpp>
#include <ration/memory.hpp>
#include <ration/optimizer.hpp>
#include <ration/process_group.hpp>
#include <ration/rules.hpp>
#include <ration/sampler.hpp>
#include <ration/trace.hpp>
#include <ration/version.hpp>
