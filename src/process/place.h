/* place.h - the folder where programs of the library's own were installed. A constant. */
#ifndef HDI_PROCESS_PLACE_H
#define HDI_PROCESS_PLACE_H

extern const char hdi_programs_place[];

#endif
