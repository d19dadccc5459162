package main

import "slices"

// faultKind is a kind of fault, by the name that is printed.
type faultKind string

const (
	// Faults of one worker, with the database or remote.
	killWorker        faultKind = "kill"             // SIGKILL; started again afterwards
	powerLoss         faultKind = "power-loss"       // SIGKILL while the network hides it
	freezeWorker      faultKind = "freeze"           // SIGSTOP, then SIGCONT
	linkDown          faultKind = "link-down"        // its network interface is shut down
	blackHole         faultKind = "black-hole"       // data is dropped both ways, no connection closed
	dropFromServer    faultKind = "drop-from-server" // what the server sends is dropped
	dropToServer      faultKind = "drop-to-server"   // what the worker sends is dropped
	holdTraffic       faultKind = "hold-traffic"     // data arrives only afterwards
	delayTraffic      faultKind = "delay-traffic"    // data arrives late
	resetConnections  faultKind = "reset-connections"
	refuseConnections faultKind = "refuse-connections"
	// Faults of the server.
	restartFast      faultKind = "restart-fast"
	restartImmediate faultKind = "restart-immediate"
	killServer       faultKind = "kill-server"
	freezeServer     faultKind = "freeze-server"     // SIGSTOP to all its processes
	failoverKill     faultKind = "failover-kill"     // the primary is killed
	failoverReadOnly faultKind = "failover-readonly" // the primary refuses to write
	// Faults in the database.
	endListeners    faultKind = "end-listeners"    // pg_terminate_backend
	endPools        faultKind = "end-pools"        // of the other sessions
	endSessions     faultKind = "end-sessions"     // of all
	disableTriggers faultKind = "disable-triggers" // alter table … disable trigger user, of tasks and steps
	notifyFlood     faultKind = "notify-flood"     // notifications one by one
	notifyBurst     faultKind = "notify-burst"     // many notifications in one transaction
	lockRows        faultKind = "lock-rows"        // of many tasks
	holdSnapshot    faultKind = "hold-snapshot"    // an old one
	operatorReads   faultKind = "operator-reads"   // lists and counts, over and over
	deleteTasks     faultKind = "delete-tasks"     // restores and purges some of them afterwards
	// Faults of the daemon that publishes videos.
	killDaemon   faultKind = "kill-daemon"
	killFFmpeg   faultKind = "kill-ffmpeg"
	freezeDaemon faultKind = "freeze-daemon"
	// Faults of the coordinators of the remote workers.
	killCoordinator faultKind = "kill-coordinator" // SIGKILL; started again afterwards
)

// needsProxy reports whether the proxy between a worker and the server injects the fault.
func (k faultKind) needsProxy() bool {
	return slices.Contains([]faultKind{
		blackHole, dropFromServer, dropToServer, holdTraffic, delayTraffic, resetConnections, refuseConnections,
	}, k)
}

// disablesWorker reports whether the fault keeps a worker from working.
func (k faultKind) disablesWorker() bool {
	return slices.Contains([]faultKind{
		killWorker, powerLoss, freezeWorker, linkDown, blackHole, dropFromServer, dropToServer, refuseConnections,
	}, k)
}

func (k faultKind) needsWorker() bool { return k.disablesWorker() || k.needsProxy() }

func (k faultKind) needsDaemon() bool { return k == killDaemon || k == killFFmpeg || k == freezeDaemon }
