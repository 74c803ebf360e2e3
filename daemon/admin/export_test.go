package admin

import "time"

// Within changes how long Get waits.
func (c *Client) Within(d time.Duration) *Client {
	c.limit = d
	return c
}
