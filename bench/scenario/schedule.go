package scenario

import (
	"math/rand/v2"
	"time"
)

// schedule is when tasks come, since the beginning: at random, independently of
// one another, rate of them a second on average, until so long has passed. All
// contestants get the same one in a round.
func arrivalTimes(rate float64, during time.Duration, round int) []time.Duration {
	r := rand.New(rand.NewPCG(uint64(rate*1000), uint64(round)))
	var all []time.Duration
	for at := 0.0; ; {
		at += r.ExpFloat64() / rate
		if next := time.Duration(at * float64(time.Second)); next < during {
			all = append(all, next)
		} else {
			return all
		}
	}
}
