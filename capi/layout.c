/* SPDX-License-Identifier: Apache-2.0 */
/* The session's layout: sent to the daemon in as many messages as needed; the layers' order is kept for waiting. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define VIEW_MAX ((KVPIPE_CTL_MAX - sizeof(struct kvpipe_layout_msg)) / sizeof(struct kvpipe_view))

_Static_assert(sizeof(struct kvpipe_view) == 128, "views cross to the daemon as they are");

static int check(const kvpipe_t *kv, const struct kvpipe_view *views, uint32_t nviews, const struct kvpipe_field *fields,
		 uint32_t nfields)
{
	size_t klen, vlen;

	if (kv->role == KVPIPE_ROLE_SCHEDULER)
		return kv_err(KVPIPE_E_INVALID, "set_layout: a scheduler has no memory: workers set the layout");
	if (nviews == 0 || nviews > kv->max_views)
		return kv_err(KVPIPE_E_INVALID, "set_layout: nviews is %u: must be 1 to %u", nviews, kv->max_views);
	if (views == NULL)
		return kv_err(KVPIPE_E_INVALID, "set_layout: views is NULL, nviews is %u", nviews);
	if (nfields > KVPIPE_MAX_FINGERPRINT)
		return kv_err(KVPIPE_E_INVALID, "set_layout: nfields is %u: at most %u", nfields, KVPIPE_MAX_FINGERPRINT);
	if (nfields > 0 && fields == NULL)
		return kv_err(KVPIPE_E_INVALID, "set_layout: fingerprint is NULL, nfields is %u", nfields);
	for (uint32_t i = 0; i < nviews; i++) {
		if (views[i].group >= KVPIPE_MAX_GROUPS)
			return kv_err(KVPIPE_E_INVALID, "set_layout: views[%u].group is %u: must be below %u", i,
				      views[i].group, KVPIPE_MAX_GROUPS);
		for (size_t k = 0; k < KV_COUNT(views[i].reserved); k++) {
			if (views[i].reserved[k] != 0)
				return kv_err(KVPIPE_E_INVALID, "set_layout: views[%u].reserved[%zu] is %#x: it must be 0", i,
					      k, views[i].reserved[k]);
		}
	}
	for (uint32_t i = 0; i < nfields; i++) {
		if (fields[i].key == NULL || fields[i].value == NULL)
			return kv_err(KVPIPE_E_INVALID, "set_layout: fingerprint[%u] has a NULL string", i);
		int err = kv_check_text("set_layout: fingerprint key", fields[i].key, KVPIPE_MAX_ID, &klen);
		if (err == 0)
			err = kv_check_text("set_layout: fingerprint value", fields[i].value, KVPIPE_MAX_VALUE, &vlen);
		if (err == 0 && klen == 0)
			err = kv_err(KVPIPE_E_INVALID, "set_layout: fingerprint[%u] has an empty key", i);
		if (err != 0)
			return err;
	}
	return 0;
}

static size_t put_field(uint8_t *to, const struct kvpipe_field *f)
{
	uint16_t klen = (uint16_t)strlen(f->key), vlen = (uint16_t)strlen(f->value);

	memcpy(to, &klen, 2);
	memcpy(to + 2, &vlen, 2);
	memcpy(to + 4, f->key, klen);
	memcpy(to + 4 + klen, f->value, vlen);
	return 4u + klen + vlen;
}

/* Returns the first view whose region is not the session's, or nviews. Writes the daemon's names for the regions of the views
 * before it to `to`, unless that is NULL. Needs lock. */
static uint32_t name_regions(const kvpipe_t *kv, const struct kv_layout *l, uint64_t *to)
{
	const struct kv_region *r = NULL;
	uint32_t i;

	for (i = 0; i < l->nviews; i++) {
		if (r == NULL || r->id != l->views[i].region)
			r = kv_region_find(kv, l->views[i].region);
		if (r == NULL)
			break;
		if (to != NULL)
			to[i] = r->remote;
	}
	return i;
}

bool kv_layout_whole(const kvpipe_t *kv)
{
	return kv->layout != NULL && name_regions(kv, kv->layout, NULL) == kv->layout->nviews;
}

/* Translates the views' regions to the daemon's names. An unknown id is refused here: it might name another region there. */
static int translate(kvpipe_t *kv, const struct kv_layout *l, uint64_t *to)
{
	pthread_mutex_lock(&kv->lock);
	uint32_t i = name_regions(kv, l, to);
	pthread_mutex_unlock(&kv->lock);
	if (i == l->nviews)
		return 0;
	return kv_err(KVPIPE_E_INVALID, "set_layout: layout: view %u (layer %u): region %#llx is not registered in this session", i, l->views[i].layer,
		      (unsigned long long)l->views[i].region);
}

int kv_layout_messages(kvpipe_t *kv, const struct kv_layout *l, int (*send)(void *arg, const void *body, size_t len), void *arg)
{
	uint64_t *regions = calloc(l->nviews, sizeof(*regions));
	uint8_t *buf = malloc(KVPIPE_CTL_MAX);
	uint32_t v = 0, f = 0;
	int err = buf == NULL || regions == NULL ? kv_err(KVPIPE_E_QUOTA, "out of memory") : translate(kv, l, regions);

	while (err == 0 && (v < l->nviews || f < l->nfields)) {
		struct kvpipe_layout_msg m = { .total_views = l->nviews };
		size_t len = sizeof(m);
		m.nviews = l->nviews - v < VIEW_MAX ? l->nviews - v : (uint32_t)VIEW_MAX;
		for (uint32_t end = v + m.nviews; v < end; v++, len += sizeof(*l->views)) {
			struct kvpipe_view view = l->views[v];
			view.region = regions[v];
			memcpy(buf + len, &view, sizeof(view));
		}
		while (v == l->nviews && f < l->nfields &&
		       len + 4 + strlen(l->fields[f].key) + strlen(l->fields[f].value) <= KVPIPE_CTL_MAX) {
			len += put_field(buf + len, &l->fields[f++]);
			m.nfields++;
		}
		if (v == l->nviews && f == l->nfields)
			m.flags = KVPIPE_LAYOUT_COMMIT;
		memcpy(buf, &m, sizeof(m));
		err = send(arg, buf, len);
	}
	free(buf);
	free(regions);
	return err;
}

struct sending {
	kvpipe_t *kv;
	uint64_t life;
	int64_t deadline;
	bool several; /* the layout takes several messages */
};

static int request(void *arg, const void *body, size_t len)
{
	struct sending *s = arg;
	struct kvpipe_layout_msg m;

	memcpy(&m, body, sizeof(m));
	s->several = s->several || (m.flags & KVPIPE_LAYOUT_COMMIT) == 0;
	return kv_request(s->kv, "set_layout", s->life, KVPIPE_CTL_LAYOUT, body, len, -1, s->deadline, NULL);
}

/* Sends all messages, from the first. What the daemon may have from an attempt that timed out does not become part of it. */
static int send_all(struct sending *s, const struct kv_layout *l)
{
	static const struct kvpipe_layout_msg nothing; /* the daemon refuses it, and drops what came before it */
	int err = 0;

	if (s->kv->torn == s->life)
		err = request(s, &nothing, sizeof(nothing));
	if (err == 0 || err == -KVPIPE_E_INVALID) {
		s->kv->torn = 0;
		err = kv_layout_messages(s->kv, l, request, s);
		if (err == -KVPIPE_E_TIMEOUT && s->several)
			s->kv->torn = s->life;
	}
	return err;
}

/* Copies text to *at, which moves behind it. */
static const char *keep(char **at, const char *text)
{
	size_t len = strlen(text) + 1;
	char *to = memcpy(*at, text, len);

	*at += len;
	return to;
}

/* Copies the layout into memory of our own, as later daemons will be told of it, too. NULL: out of memory. */
static struct kv_layout *copy(const struct kvpipe_view *views, uint32_t nviews, const struct kvpipe_field *fields,
			      uint32_t nfields)
{
	size_t vbytes = nviews * sizeof(*views), fbytes = nfields * sizeof(*fields), text = 0;

	for (uint32_t i = 0; i < nfields; i++)
		text += strlen(fields[i].key) + strlen(fields[i].value) + 2;
	struct kv_layout *l = malloc(sizeof(*l) + vbytes + fbytes + text);
	if (l == NULL)
		return NULL;
	struct kvpipe_view *v = (struct kvpipe_view *)(void *)(l + 1);
	struct kvpipe_field *f = (struct kvpipe_field *)(void *)(v + nviews);
	char *at = (char *)(f + nfields);
	memcpy(v, views, vbytes);
	for (uint32_t i = 0; i < nfields; i++) {
		f[i].key = keep(&at, fields[i].key);
		f[i].value = keep(&at, fields[i].value);
	}
	*l = (struct kv_layout){ .nviews = nviews, .nfields = nfields, .views = v, .fields = f };
	return l;
}

static int by_layer(const void *a, const void *b)
{
	const struct kv_layer *x = a, *y = b;

	return x->layer < y->layer ? -1 : x->layer > y->layer;
}

/* Distinct layers, ascending, each with its groups. */
static uint32_t sort_layers(struct kv_layer *layers, const struct kvpipe_view *views, uint32_t nviews)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < nviews; i++)
		layers[i] = (struct kv_layer){ .layer = views[i].layer, .groups = 1ull << views[i].group };
	qsort(layers, nviews, sizeof(*layers), by_layer);
	for (uint32_t i = 0; i < nviews; i++) {
		if (n > 0 && layers[n - 1].layer == layers[i].layer)
			layers[n - 1].groups |= layers[i].groups;
		else
			layers[n++] = layers[i];
	}
	return n;
}

/* Refuses a second layout. One whose memory was unregistered stays the session's, though later daemons are not told of it and so
 * would not refuse. */
static int check_first(kvpipe_t *kv)
{
	pthread_mutex_lock(&kv->lock);
	bool over = kv->layout != NULL && !kv_layout_whole(kv);
	pthread_mutex_unlock(&kv->lock);
	if (!over)
		return 0;
	return kv_err(KVPIPE_E_INVALID, "set_layout: layout: the session has another one already: it is set once, and memory of it was unregistered: "
					"open a new session");
}

/* Tells the daemon and keeps the layout; takes it and layers over. */
static int tell(kvpipe_t *kv, struct kv_layout *l, struct kv_layer *layers, uint32_t nlayers, int64_t deadline)
{
	struct sending s = { .kv = kv, .deadline = deadline };
	int err;

	do {
		err = kv_await_session(kv, "set_layout", s.deadline, &s.life);
		if (err == 0)
			err = check_first(kv);
		if (err == 0)
			err = send_all(&s, l);
		pthread_mutex_lock(&kv->lock);
		if (err == 0 && kv->life != s.life)
			err = KV_LOST; /* the daemon that was told has gone since */
		if (err == 0 && kv->layout == NULL) {
			kv->layout = l;
			kv->layers = layers;
			kv->nlayers = nlayers;
			l = NULL;
			layers = NULL;
		}
		pthread_mutex_unlock(&kv->lock);
	} while (err == KV_LOST);
	free(l);
	free(layers);
	return err;
}

int kv_layout_set(kvpipe_t *kv, const struct kvpipe_view *views, uint32_t nviews, const struct kvpipe_field *fingerprint,
		  uint32_t nfields, int64_t deadline)
{
	int err = check(kv, views, nviews, fingerprint, nfields);

	if (err != 0)
		return err;
	struct kv_layout *l = copy(views, nviews, fingerprint, nfields);
	struct kv_layer *layers = calloc(nviews, sizeof(*layers));
	if (l == NULL || layers == NULL) {
		free(l);
		free(layers);
		return kv_err(KVPIPE_E_QUOTA, "out of memory");
	}
	uint32_t n = sort_layers(layers, views, nviews);
	/* The messages of one layout must not mix with those of another thread's. */
	pthread_mutex_lock(&kv->layout_lock);
	err = tell(kv, l, layers, n, deadline);
	pthread_mutex_unlock(&kv->layout_lock);
	return err;
}

int kvpipe_set_layout(kvpipe_t *kv, const struct kvpipe_view *views, uint32_t nviews,
		      const struct kvpipe_field *fingerprint, uint32_t nfields)
{
	KV_UNCANCELLED;
	int err = kv_enter(kv);

	return err != 0 ? err : kv_layout_set(kv, views, nviews, fingerprint, nfields, kv_now() + KV_CALL_NS);
}

uint32_t kv_layer_rank(const kvpipe_t *kv, uint64_t groups, uint32_t layer)
{
	uint32_t rank = 0;

	if (kv->role != KVPIPE_ROLE_WORKER) /* for a scheduler the layers' own numbers count */
		return layer == UINT32_MAX ? 0 : layer + 1;
	for (uint32_t i = 0; i < kv->nlayers && kv->layers[i].layer <= layer; i++) {
		if ((kv->layers[i].groups & groups) == 0)
			continue;
		rank++;
		if (kv->layers[i].layer == layer)
			return rank;
	}
	return 0;
}

/* Raises *word to value. False: it is that high already. */
static bool raise_to(uint64_t *word, uint64_t value)
{
	uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED);

	do {
		if (value <= old)
			return false;
	} while (!__atomic_compare_exchange_n(word, &old, value, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	return true;
}

void kv_progress_show(kvpipe_t *kv)
{
	uint64_t value = __atomic_load_n(&kv->progress, __ATOMIC_ACQUIRE);

	if (!raise_to(&kv->rings.c->progress, value))
		return;
	kvpipe_full_barrier();
	uint64_t awaited = kvpipe_load_acquire(&kv->rings.d->progress_wait);
	if (awaited != 0 && value >= awaited)
		kv_event_signal(kv->rings.sq_event);
}

int kvpipe_progress(kvpipe_t *kv, uint64_t value)
{
	KV_UNCANCELLED;
	int err = kv_enter(kv);

	if (err != 0)
		return err;
	if (kv->role == KVPIPE_ROLE_SCHEDULER) /* nobody waits for it */
		return kv_err(KVPIPE_E_INVALID, "progress: a scheduler writes no blocks: each worker says how far its rank is");
	/* First kept for the next daemon, then shown to the present one. The helper installs a daemon, then reads what was kept. */
	if (raise_to(&kv->progress, value)) {
		kvpipe_full_barrier();
		kv_progress_show(kv);
	}
	return __atomic_load_n(&kv->state, __ATOMIC_RELAXED) == KV_GONE ? kv_over(kv) : 0;
}
