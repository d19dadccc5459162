package webhook

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// The lease makes one of several processes the deliverer. The holder renews it several
// times before it expires. The others try to acquire it as often, so that a new holder
// takes over within fifteen seconds.
const (
	leaseDuration    = 11 * time.Second
	renewalsPerLease = 4
)

var errLeaseLost = errors.New("another process holds the lease")

// A process that waits for the lease only reads.
const acquireSQL = `
/* acquire lease */
insert into cuelight_leases as l (name, holder, until)
select $1, $2, now() + make_interval(secs => $3)
 where not exists (select from cuelight_leases where name = $1 and holder <> $2 and until > now())
on conflict (name) do update set holder = excluded.holder, until = excluded.until
 where l.holder = excluded.holder or l.until <= now()
returning true`

// acquire reports whether this deliverer got the lease.
func (d *deliverer) acquire(ctx context.Context) (bool, error) {
	begun, w := time.Now(), d.webhooks
	var acquired bool
	err := w.db.QueryRow(ctx, acquireSQL, w.leaseName(), d.holder, w.options.leaseDuration.Seconds()).Scan(&acquired)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("acquire lease: %w", err)
	}
	d.renewed = begun
	return true, nil
}

// renewSQL locks the lease's row until the transaction ends, so no other process can
// acquire the lease before the transaction's writes are visible.
const renewSQL = `
/* renew lease */
update cuelight_leases set until = now() + make_interval(secs => $3) where name = $1 and holder = $2 returning true`

const releaseSQL = `
/* release lease */
delete from cuelight_leases where name = $1 and holder = $2`

// release lets another process take over immediately.
func (d *deliverer) release(ctx context.Context) error {
	if _, err := d.webhooks.db.Exec(ctx, releaseSQL, d.webhooks.leaseName(), d.holder); err != nil {
		return fmt.Errorf("release lease: %w", err)
	}
	return nil
}

func (w *Webhooks) leaseName() string { return "webhooks:" + w.pipeline() }

// newID returns a random UUID (version 4) for an object that has no row.
func newID() (id store.ID) {
	rand.Read(id[:]) // never returns an error
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}
