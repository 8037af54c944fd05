/* Scores of many nodes at once: sums of two powers of ten (schedulers.md 9.2).
 *
 * 10^x is computed here and not by the C library, so that the loop becomes vector instructions and every machine gets the same bits:
 * contraction to fused multiply-add is off, and only additions, multiplications and conversions of IEEE doubles are used.
 * Error below 4e-15 relative for |x| <= 300, which is far below the 1e-12 that the specification asks for. */

#ifndef FASTPLAN_SCORE_H
#define FASTPLAN_SCORE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define FASTPLAN_CLONES __attribute__((target_clones("avx512f", "avx2", "default"), optimize("fp-contract=off")))
#else
#define FASTPLAN_CLONES
#endif

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

static inline __attribute__((always_inline)) double fastplan_power_of_ten(double exponent)
{
    /* Beyond +-300 every score is at its bound anyway. The comparison also turns NaN into the bound. */
    double x = exponent > -300.0 ? exponent : -300.0;
    x = x < 300.0 ? x : 300.0;
    /* x = (n + f) * log10(2), n whole and |f| <= 1/2. Adding 1.5 * 2^52 rounds to a whole number that then stands in the lowest bits. */
    double shifted = x * 3.32192809488736234787 + 6755399441055744.0;
    double n = shifted - 6755399441055744.0;
    /* The rest of x, in two steps so that no digits are lost: the first factor is log10(2) cut to 32 bits, so its product is exact. */
    double rest = (x - n * 0.3010299955494702) - n * 1.1451100898021838e-10;
    double t = rest * 2.30258509299404568402;
    /* e^t for |t| <= 0.3466: the Taylor series to t^13 leaves less than 5e-18. */
    double p = 1.6059043836821613e-10;
    p = p * t + 2.08767569878681e-09;
    p = p * t + 2.505210838544172e-08;
    p = p * t + 2.755731922398589e-07;
    p = p * t + 2.7557319223985893e-06;
    p = p * t + 2.48015873015873e-05;
    p = p * t + 1.984126984126984e-04;
    p = p * t + 1.388888888888889e-03;
    p = p * t + 8.333333333333333e-03;
    p = p * t + 4.1666666666666664e-02;
    p = p * t + 1.6666666666666666e-01;
    p = p * t + 0.5;
    p = p * t + 1.0;
    p = p * t + 1.0;
    /* Times 2^n: n + 1023 is the exponent field. */
    int64_t whole;
    memcpy(&whole, &shifted, 8);
    uint64_t bits = ((uint64_t)whole + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, 8);
    return p * scale;
}

/* scores[i] from the free shares of cpu and memory: binpack 20 - x, spread x - 2, both within [0, 18]. */
FASTPLAN_CLONES static void fastplan_scores(const double* restrict cpu_free, const double* restrict memory_free, double* restrict scores, size_t count, int spread)
{
    const double sign = spread ? 1.0 : -1.0;
    const double start = spread ? -2.0 : 20.0;
    for (size_t i = 0; i < count; i++) {
        double score = start + sign * (fastplan_power_of_ten(cpu_free[i]) + fastplan_power_of_ten(memory_free[i]));
        score = score > 0.0 ? score : 0.0;
        scores[i] = score < 18.0 ? score : 18.0;
    }
}

#endif
