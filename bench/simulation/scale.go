package simulation

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/cuelight/cuelight/bench/result"
)

// Write writes what a result measured next to its prediction, and predictions for larger farms.
func Write(out io.Writer, r *result.Result) error {
	c, err := NewCosts(r)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| measured\t| unit\t| measured\t| predicted\t| ratio\t|\n|---\t|---\t|--:\t|--:\t|--:\t|")
	for _, p := range Points(r, c) {
		fmt.Fprintf(w, "| %s\t| %s\t| %.4g\t| %.4g\t| %.2f\t|\n", p.Name, p.Unit, p.Measured, p.Predicted, p.Ratio())
	}
	fmt.Fprintln(w)
	writeHosts(w, c, 500_000)
	fmt.Fprintln(w)
	writeCores(w, c)
	return w.Flush()
}

// hostSlots are those of a host that transcodes one video at a time.
var hostSlots = [stages]int{2, 1, 2, 2, 2}

// Times of a video's stages on a host.
var (
	film = [stages]time.Duration{30 * time.Second, 20 * time.Minute, 5 * time.Second, 10 * time.Second, 20 * time.Second}
	clip = [stages]time.Duration{5 * time.Second, 3 * time.Minute, time.Second, 2 * time.Second, 5 * time.Second}
)

// writeHosts predicts farms of hosts whose transcode slots are busy for 70 % of the time, with up to 2,000 tasks: as
// many as wake so many processes in all.
func writeHosts(w io.Writer, c Costs, wakes int) {
	const load = 0.7
	fmt.Fprintln(w, "| hosts\t| work\t| connected\t| tasks a year\t| exchanges/s\t| database, cores\t| wait, p50\t| wait, p99\t|\n"+
		"|--:\t|---\t|---\t|--:\t|--:\t|--:\t|--:\t|--:\t|")
	for _, hosts := range []int{10, 100, 1000} {
		for _, name := range []string{"films", "clips"} {
			work := film
			if name == "clips" {
				work = clip
			}
			for _, coordinators := range []int{0, max(hosts/100, 1)} {
				f := Farm{
					Costs: c, Processes: hosts, Slots: hostSlots, DatabaseCores: 4, Network: 250 * time.Microsecond,
					Work: work, Tasks: min(2000, wakes/hosts), Rate: load * float64(hosts) / work[1].Seconds(),
				}
				connected := "each to the database"
				if coordinators > 0 {
					connected = fmt.Sprintf("to %d coordinators", coordinators)
					f.Processes = coordinators
					for i := range f.Slots {
						f.Slots[i] *= hosts / coordinators
					}
				}
				p := f.Run()
				fmt.Fprintf(w, "| %d\t| %s\t| %s\t| %.2g M\t| %.3g\t| %.2g\t| %.2g ms\t| %.2g ms\t|\n", hosts, name, connected,
					f.Rate*365*86400/1e6, p.Exchanges, p.DatabaseCores,
					result.Milliseconds(Percentile(p.IngestWaits, 50)), result.Milliseconds(Percentile(p.IngestWaits, 99)))
			}
		}
	}
}

// writeCores predicts the throughput of stages that do nothing, with a server of its own for the database.
func writeCores(w io.Writer, c Costs) {
	processes := []int{1, 2, 4, 8, 16}
	fmt.Fprint(w, "| cores of the database\t|")
	for _, n := range processes {
		fmt.Fprintf(w, " %d processes\t|", n)
	}
	fmt.Fprint(w, "\n|--:\t|")
	for range processes {
		fmt.Fprint(w, "--:\t|")
	}
	fmt.Fprintln(w)
	for _, cores := range []int{2, 4, 8, 16} {
		fmt.Fprintf(w, "| %d\t|", cores)
		for _, n := range processes {
			f := Farm{Costs: c, Processes: n, Slots: SameSlots(benchSlots), DatabaseCores: cores, Network: 250 * time.Microsecond, Tasks: 20_000}
			fmt.Fprintf(w, " %.3g/s\t|", f.Run().Throughput)
		}
		fmt.Fprintln(w)
	}
}
