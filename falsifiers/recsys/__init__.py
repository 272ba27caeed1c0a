"""Claims about recommender training: HSTU attention, embedding tables, pipelines, and launching jobs."""
