package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// link is a TCP proxy that can be cut.
type link struct {
	url    string
	target string
	l      net.Listener

	mu    sync.Mutex
	conns map[net.Conn]bool
	down  bool
	all   sync.WaitGroup
}

func newLink(t testing.TB, target string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{url: "http://" + l.Addr().String(), target: strings.TrimPrefix(target, "http://"), l: l, conns: make(map[net.Conn]bool)}
	k.all.Go(k.accept)
	t.Cleanup(func() {
		l.Close()
		k.setDown(true)
		k.all.Wait()
	})
	return k
}

func (k *link) accept() {
	for {
		in, err := k.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", k.target)
		if err != nil || !k.add(in, out) {
			in.Close()
			if err == nil {
				out.Close()
			}
			continue
		}
		for _, c := range [][2]net.Conn{{in, out}, {out, in}} {
			k.all.Go(func() {
				_, _ = io.Copy(c[0], c[1])
				in.Close()
				out.Close()
			})
		}
	}
}

func (k *link) add(conns ...net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range conns {
		k.conns[c] = true
	}
	return !k.down
}

// setDown ends all connections, and refuses new ones until the link is up again.
func (k *link) setDown(down bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down = down
	if down {
		for c := range k.conns {
			c.Close()
		}
		clear(k.conns)
	}
}

func TestRemoteWorker_StopsItsWorkBeforeOthersTakeIt(t *testing.T) {
	t.Parallel()
	type attempt struct {
		number int
		at     time.Time
	}
	started, ended := make(chan attempt, 2), make(chan attempt, 2)
	s := setup(t, stages.Stage{Name: "first", Work: func(ctx context.Context, job *stages.Job) (any, error) {
		started <- attempt{job.Attempt, time.Now()}
		if job.Attempt > 1 {
			return nil, nil
		}
		<-ctx.Done()
		ended <- attempt{job.Attempt, time.Now()}
		if !errors.Is(context.Cause(ctx), stages.ErrLeaseLost) {
			t.Errorf("the attempt ended because of %v", context.Cause(ctx))
		}
		return nil, ctx.Err()
	}})
	supervisor := s.supervise()
	k := newLink(t, s.url)
	lost := s.work(func(o *remote.ClientOptions, r *stages.Runner) { o.URL, r.Name = k.url, "studio" })
	task := s.submit("a source")
	<-started
	other := s.work(func(o *remote.ClientOptions, _ *stages.Runner) { o.Key = "key-2" })
	waittest.Equal(t, "the waiting workers", 2, s.Waiting) // only then the coordinator sees the end of the connection
	cut := time.Now()
	k.setDown(true)
	end, second := <-ended, <-started
	if second.at.Before(end.at) {
		t.Errorf("the second attempt started %s before the first ended", end.at.Sub(second.at))
	}
	if took := second.at.Sub(cut); took > 12*time.Second {
		t.Errorf("the task waited %s for its second attempt", took)
	}
	other.wait(t, stages.StageCompleted)
	if e := supervisor.wait(t, stages.WorkerLost); e.LostName != "studio" {
		t.Errorf("the lost worker is named %q", e.LostName)
	}
	if got := s.status(task, "first"); got != store.StatusCompleted {
		t.Errorf("the task is %s", got)
	}
	k.setDown(false)
	lost.wait(t, stages.WorkerStarted) // it registers again
}

func TestRemoteWorker_GoesOnAfterAShortCut(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := setup(t, stages.Stage{Name: "first", Work: func(ctx context.Context, _ *stages.Job) (any, error) {
		select {
		case <-release:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}})
	s.supervise()
	k := newLink(t, s.url)
	worker := s.work(func(o *remote.ClientOptions, _ *stages.Runner) { o.URL = k.url })
	s.submit("a source")
	worker.wait(t, stages.StageStarted)
	k.setDown(true)
	time.Sleep(2 * time.Second) // the length of the cut is what is tested
	k.setDown(false)
	time.Sleep(8 * time.Second) // longer than the grace of a worker that does not come back
	close(release)
	if e := worker.wait(t, stages.StageCompleted); e.Attempt != 1 {
		t.Errorf("attempt %d completed", e.Attempt)
	}
}

func TestCoordinator_HearsAWorkerInItsOwnRequestsOnly(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]func(s *site, dead store.ID){
		"a worker of the same key asks for a claim that is lost": func(s *site, _ store.ID) {
			path := "/claims/" + store.ID{7}.String() + "/results/work"
			if status, text := s.sendAs("key-1", http.MethodGet, path, ""); status != http.StatusConflict {
				s.t.Errorf("%d %s", status, text)
			}
		},
		"another key sends heartbeats in its name": func(s *site, dead store.ID) {
			if kind := s.post("key-2", "/heartbeat", fmt.Sprintf(`{"worker_id":%q,"running":[]}`, dead)); kind != "worker-unknown" {
				s.t.Errorf("the problem is %q", kind)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t, stages.Stage{Name: "work", Work: echo})
			dead := s.register("key-1")
			s.submit("a source")
			s.claim("key-1", dead, "work")
			for began := time.Now(); time.Since(began) < 9*time.Second; time.Sleep(500 * time.Millisecond) {
				request(s, dead) // while the worker sends nothing
			}
			var age float64
			if err := s.pool.QueryRow(t.Context(),
				"select extract(epoch from clock_timestamp() - heartbeat_at)::float8 from test_workers where id = $1", dead).Scan(&age); err != nil {
				t.Fatal(err)
			}
			if age < 5 {
				t.Errorf("the worker has sent nothing for 9 s, and its heartbeat is %.1f s old", age)
			}
		})
	}
}

// A worker that was cut off, or frozen, leaves a request that waits to its end. That is no sign of life.
func TestCoordinator_TakesNoEndOfAWaitingRequestForASignOfLife(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "work", Work: echo})
	dead := s.register("key-1")
	s.submit("a source")
	token := s.claim("key-1", dead, "work").Token
	conn := dialRaw(t, s.coordinator)
	defer conn.Close()
	conn.send(t, "/exchange", fmt.Sprintf(`{"worker_id":%q,"held":[%q],"wait_s":8}`, dead, token))
	waittest.Equal(t, "the waiting workers", 1, s.Waiting)
	waittest.Equal(t, "the waiting workers", 0, s.Waiting)
	time.Sleep(2 * time.Second) // in which it would be recorded
	var age float64
	if err := s.pool.QueryRow(t.Context(),
		"select extract(epoch from clock_timestamp() - heartbeat_at)::float8 from test_workers where id = $1", dead).Scan(&age); err != nil {
		t.Fatal(err)
	}
	if age < 4 {
		t.Errorf("the request ended two seconds ago, after eight, and the heartbeat is %.1f s old", age)
	}
}

// cutWaiting sends a waiting request of a worker, cuts it, and waits until the database knows that.
func (s *site) cutWaiting(worker store.ID) {
	s.t.Helper()
	conn := dialRaw(s.t, s.coordinator)
	conn.send(s.t, "/exchange", fmt.Sprintf(`{"worker_id":%q,"wait_s":30}`, worker))
	waittest.Equal(s.t, "the waiting workers", 1, s.Waiting)
	conn.Close()
	waittest.Until(s.t, "the worker is disconnected", func() bool {
		var isDisconnected bool
		err := s.pool.QueryRow(s.t.Context(), "select coalesce(session = 0, false) from test_workers where id = $1", worker).Scan(&isDisconnected)
		return err == nil && isDisconnected
	})
}

// A worker that gets an answer to its heartbeat goes on with attempts that others have taken.
func TestCoordinator_RefusesTheFirstCallOfALostWorker(t *testing.T) {
	t.Parallel()
	expireElsewhere := func(s *site, worker store.ID) {
		if _, err := engine.New(s.pool, s.pipeline.Graph()).ExpireWorkers(s.t.Context(), []store.ID{worker}); err != nil {
			s.t.Fatal(err)
		}
	}
	for name, end := range map[string]func(s *site, worker store.ID){
		"it was expired in a silence": func(s *site, worker store.ID) {
			time.Sleep(5100 * time.Millisecond) // the length of the silence is what is tested
			expireElsewhere(s, worker)
		},
		"it was expired after its connection ended": func(s *site, worker store.ID) {
			s.cutWaiting(worker)
			expireElsewhere(s, worker)
		},
		"another worker of its key has expired it": func(s *site, worker store.ID) {
			s.call("key-1", "/workers/expire", fmt.Sprintf(`{"worker_ids":[%q]}`, worker), new(any))
		},
		"it has deregistered": func(s *site, worker store.ID) {
			s.send("POST", "/deregister", fmt.Sprintf(`{"worker_id":%q}`, worker), http.StatusNoContent, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t, stages.Stage{Name: "work", Work: echo})
			worker := s.register("key-1")
			s.submit("a source")
			c := s.claim("key-1", worker, "work")
			end(s, worker)
			if kind := s.get("key-1", "/claims/"+c.Token.String()+"/results/work"); kind != "claim-lost" {
				t.Errorf("the answer to a request of its claim is %q", kind)
			}
			heartbeat := fmt.Sprintf(`{"worker_id":%q,"running":[{"token":%q}]}`, worker, c.Token)
			if kind := s.post("key-1", "/heartbeat", heartbeat); kind != "worker-unknown" {
				t.Errorf("the answer to its heartbeat is %q", kind)
			}
		})
	}
}

func TestCoordinator_AcceptsAWorkerThatReturnsInTime(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "work", Work: echo})
	worker := s.register("key-1")
	s.submit("a source")
	c := s.claim("key-1", worker, "work")
	s.cutWaiting(worker)
	if kind := s.post("key-1", "/heartbeat", fmt.Sprintf(`{"worker_id":%q,"running":[{"token":%q}]}`, worker, c.Token)); kind != "" {
		t.Errorf("the answer to its heartbeat is %q", kind)
	}
	var isConnected bool // at once, and not with the next renewal
	err := s.pool.QueryRow(t.Context(), "select session is null from test_workers where id = $1", worker).Scan(&isConnected)
	if err != nil || !isConnected {
		t.Errorf("the worker is connected: %t, %v", isConnected, err)
	}
	if s.report("key-1", worker, c.Token, `"outcome":"completed"`) {
		t.Error("the claim is lost")
	}
}
