package proofkit

import "time"

// Usage is what processes have used. Memory is in bytes.
type Usage struct {
	CPU       time.Duration // of all threads, in user and in system mode
	Peak      int64         // resident memory, at most so far; now where the system keeps no peak
	Resident  int64         // memory now
	Anonymous int64         // the part of it that is not backed by files; 0 where the system does not say
}
