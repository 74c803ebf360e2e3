// Package metrics turns a snapshot of the daemon into Prometheus metrics. This file has all their names; labels take few
// values (statuses, reasons, transports, node names), never ids of engines' requests.
package metrics

// Names of all metrics.
const (
	BuildInfo         = "kvpipe_build_info"
	Draining          = "kvpipe_draining"
	Sessions          = "kvpipe_sessions"
	PinnedBytes       = "kvpipe_pinned_bytes"
	Regions           = "kvpipe_regions"
	Offers            = "kvpipe_offers"
	OrphanedBytes     = "kvpipe_orphaned_bytes"
	Limits            = "kvpipe_limit"
	LimitUsed         = "kvpipe_limit_used"
	Takes             = "kvpipe_takes"
	Transfers         = "kvpipe_transfers"
	HeldBlocks        = "kvpipe_held_blocks"
	Operations        = "kvpipe_operations_total"
	MovedBytes        = "kvpipe_moved_bytes_total"
	OperationSeconds  = "kvpipe_take_seconds"
	PeerUp            = "kvpipe_peer_up"
	PeerRTT           = "kvpipe_peer_rtt_seconds"
	PeerLinks         = "kvpipe_peer_links"
	PeerSecure        = "kvpipe_peer_secure"
	PeerDataPlain     = "kvpipe_peer_data_plain"
	TransportChosen   = "kvpipe_transport_chosen"
	TransportRate     = "kvpipe_transport_rate_bytes_per_second"
	TransportBytes    = "kvpipe_transport_bytes_total"
	TransportSlices   = "kvpipe_transport_slices_total"
	SlicesRetried     = "kvpipe_slices_retried_total"
	DiscardedBytes    = "kvpipe_discarded_bytes_total"
	MalformedFrames   = "kvpipe_malformed_frames_total"
	RefusedPeers      = "kvpipe_connections_refused_total"
	ChannelsOpened    = "kvpipe_channels_opened_total"
	Reconnects        = "kvpipe_channel_reconnects_total"
	SessionsEnded     = "kvpipe_sessions_ended_total"
	CertificateExpiry = "kvpipe_certificate_expiry_timestamp_seconds"
)
