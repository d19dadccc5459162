//go:build !linux

package child

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// clockTime reads a time as ps writes it: 1-02:03:04, 02:03:04 or 3:04.56.
func clockTime(text string) (time.Duration, error) {
	days, clock, ok := strings.Cut(text, "-")
	if !ok {
		days, clock = "0", text
	}
	total, err := strconv.ParseFloat(days, 64)
	parts := strings.Split(clock, ":")
	if err != nil || len(parts) < 2 || len(parts) > 3 {
		return 0, fmt.Errorf("%q is no time", text)
	}
	if len(parts) == 2 {
		total *= 24 // of the hours that are not there
	}
	for i, part := range parts {
		v, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is no time: %w", text, err)
		}
		base := 60.0
		if i == 0 && len(parts) == 3 {
			base = 24
		}
		total = total*base + v
	}
	return time.Duration(total * float64(time.Second)), nil
}
