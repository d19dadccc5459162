package system

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// WithConn calls a function with a connection of its own.
func WithConn(ctx context.Context, url string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(conn)
}

// Exec executes a statement on a connection of its own.
func Exec(ctx context.Context, url, sql string, args ...any) error {
	return WithConn(ctx, url, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, args...)
		return err
	})
}

// OpenPool returns a pool that is connected. 0 connections is pgxpool's default.
func OpenPool(ctx context.Context, url string, connections int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	if connections > 0 {
		config.MaxConns = connections
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect: %w", err)
	}
	return pool, nil
}

// WithPool calls a function with a pool of its own.
func WithPool(ctx context.Context, url string, connections int32, do func(*pgxpool.Pool) error) error {
	pool, err := OpenPool(ctx, url, connections)
	if err != nil {
		return err
	}
	defer pool.Close()
	return do(pool)
}
