/* Large pages for memory that is read and written in random order.
 *
 * A table of many nodes is larger than what the processor can look up in pages of 4 KiB, so nearly every access would wait for the page tables first.
 * Where the system gives large pages on request (Linux, transparent huge pages "madvise"), this requests them; elsewhere it does nothing. */

#ifndef FASTPLAN_PAGES_H
#define FASTPLAN_PAGES_H

#include <stddef.h>
#include <stdint.h>

#if defined(__linux__)
#include <errno.h>
#include <sys/mman.h>
#endif

#define FASTPLAN_LARGE_PAGE ((uintptr_t) 1 << 21)
#define FASTPLAN_REMEMBERED 1024

/* Ask for a large page around small blocks: the allocator hands them out next to each other. Each page is asked for about once. */
static inline void fastplan_large_page_at(const void *address)
{
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    static uintptr_t asked[FASTPLAN_REMEMBERED];
    uintptr_t page = (uintptr_t) address / FASTPLAN_LARGE_PAGE;
    if (asked[page % FASTPLAN_REMEMBERED] != page) {
        /* Only a hint. The end of the heap is asked for again when it has grown: until then part of the page is not there. */
        int before = errno;
        if (madvise((void *) (page * FASTPLAN_LARGE_PAGE), FASTPLAN_LARGE_PAGE, MADV_HUGEPAGE) == 0)
            asked[page % FASTPLAN_REMEMBERED] = page;
        errno = before;
    }
#else
    (void) address;
#endif
}

/* Ask for large pages in an array of its own; only what lies in whole large pages. */
static inline void fastplan_large_pages(void *array, size_t bytes)
{
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    uintptr_t first = ((uintptr_t) array + FASTPLAN_LARGE_PAGE - 1) & ~(FASTPLAN_LARGE_PAGE - 1);
    uintptr_t last = ((uintptr_t) array + bytes) & ~(FASTPLAN_LARGE_PAGE - 1);
    if (first < last) {
        int before = errno;
        (void) madvise((void *) first, last - first, MADV_HUGEPAGE);
        errno = before;
    }
#else
    (void) array;
    (void) bytes;
#endif
}

#endif
