package harness

import "errors"

// ErrUnavailable is for a contestant that cannot be had on this machine, such
// as one that needs Node where there is none: it is left out of the results,
// with the reason. Setup and Start wrap it.
var ErrUnavailable = errors.New("not to be had on this machine")
