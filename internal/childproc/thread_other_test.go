//go:build unix && !linux

package childproc_test

const hasDeathSignal = false
