/* The route table. */
#include "api/internal.h"

const struct route api_routes[] = {
    {HTTP_POST, "/api/v1/push", api_push, ACCESS_WRITE, &push_doc},
    {HTTP_POST, "/api/v1/fetch", api_fetch, ACCESS_READ, &fetch_doc},
    {HTTP_POST, "/api/v1/partitions/changed", api_changed, ACCESS_READ, &changed_doc},
    {HTTP_POST, "/api/v1/configure", api_configure, ACCESS_READ_WRITE, &configure_doc},
    {HTTP_GET, "/api/v1/resources/queues", api_queue_list, ACCESS_READ, &queue_list_doc},
    {HTTP_GET, "/api/v1/resources/queues/*", api_queue_get, ACCESS_READ, &queue_get_doc},
    {HTTP_DELETE, "/api/v1/resources/queues/*", api_queue_delete, ACCESS_ADMIN, &queue_delete_doc},
    {HTTP_GET, "/api/v1/resources/partitions", api_partitions, ACCESS_READ, &partitions_doc},
    {HTTP_GET, "/api/v1/resources/overview", api_overview, ACCESS_READ, &overview_doc},
    {HTTP_GET, "/api/v1/resources/namespaces", api_namespaces, ACCESS_READ, &namespaces_doc},
    {HTTP_GET, "/api/v1/resources/tasks", api_tasks, ACCESS_READ, &tasks_doc},
    {HTTP_POST, "/api/v1/stats/refresh", api_stats_refresh, ACCESS_ADMIN, &stats_refresh_doc},
    {HTTP_POST, "/api/v1/kv", api_kv, ACCESS_READ_WRITE, &kv_doc},
    {HTTP_GET, "/api/v1/kv/*", api_kv_key, ACCESS_READ, &kv_get_doc},
    {HTTP_PUT, "/api/v1/kv/*", api_kv_key, ACCESS_READ_WRITE, &kv_put_doc},
    {HTTP_DELETE, "/api/v1/kv/*", api_kv_key, ACCESS_READ_WRITE, &kv_delete_doc},
    {HTTP_GET, "/api/v1/resources/kv/namespaces", api_kv_namespaces, ACCESS_READ,
     &kv_namespaces_doc},
    {HTTP_POST, "/api/v1/resources/kv/list", api_kv_list, ACCESS_READ, &kv_list_doc},
    {HTTP_GET, "/health", api_health, ACCESS_PUBLIC, &health_doc},
    {HTTP_GET, "/status", api_status, ACCESS_READ, &status_doc},
    {HTTP_GET, "/metrics", api_metrics, ACCESS_PUBLIC, &metrics_doc},
    {HTTP_GET, "/metrics/prometheus", api_metrics_text, ACCESS_PUBLIC, &metrics_text_doc},
};

const struct route_field route_no_fields[] = {{0}};

const size_t api_route_count = sizeof(api_routes) / sizeof(api_routes[0]);
