package result

// Benchmarks returns the lines for benchstat.
func (r *Result) Benchmarks() string { return string(r.benchmarks()) }
