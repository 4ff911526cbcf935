#pragma once
// The inverse of the normal distribution function, in basic arithmetic: the same bits everywhere.

namespace ration {

/// The natural logarithm of a positive, finite, normal number, to a few units in the last place;
/// libm's own differs between machines.
double portable_log(double x);

/// x with P(X < x) = p for a standard normal X, 0 < p < 1; relative error below 1.2e-9. Acklam's
/// rational approximation ("An algorithm for computing the inverse normal cumulative distribution
/// function", 2003), without the refinement step.
double inverse_normal(double p);

}  // namespace ration
